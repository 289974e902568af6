"""FedVARP: Jhunjhunwala et al., "FedVARP: Tackling the Variance Due to Partial Client Participation in
Federated Learning", UAI 2022, Algorithm 1.

The table y lies with the clients: each keeps its own row and sends how far its update is from it, the
server keeps the mean. These are the numbers of the paper's table at the server, without one row per client
there. Clients count equally, as in the paper.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedtide.algorithms.base import Algorithm, Change, Context
from fedtide.algorithms.fedavg import Down
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    y: Vector  # the mean of y_j over all clients


class Memory(NamedTuple):
    """State of a client."""

    y: Vector  # y_i: its last update


class Upload(NamedTuple):
    """What a client sends."""

    dy: Vector  # Delta_i - y_i


@dataclass(frozen=True, kw_only=True)
class FedVarp(Algorithm[Server, Down, Memory, Upload]):
    """The last updates of all clients reduce the variance of a partial cohort."""

    server_lr: float = 1.0  # eta_g

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def memory(self, down: Down) -> Memory:
        return Memory(torch.zeros_like(down.x))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        delta = y - down.x
        return Upload(delta - mine.y), Memory(delta)

    def row(self, mine: Memory) -> Vector:
        return mine.y

    def sent(self, up: Upload) -> Vector:
        return up.dy

    def changed(self, server: Server, change: Change) -> Server:
        return Server(server.x, change.mean(server.y, change.left, change.came))

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        v = up.dy.mean(0) + server.y  # the mean before this round
        y = server.y + up.dy.sum(0) / cohort.population
        return Server(server.x + self.server_lr * v, y)
