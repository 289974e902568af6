"""AFA-CD and AFA-CS: Yang et al., "Anarchic Federated Learning", ICML 2022, for cross-device and cross-silo.

Clients decide how many steps they make; what counts is their mean gradient. Our rounds are synchronous, so
nothing is stale but the gradients that AFA-CS remembers. The mean gradient is (x - y) / (a lr), where a is
the number of steps K for plain SGD, and FedNova's ||a||_1 for momentum. The server's learning rate multiplies
it alone: FedAvg's pace is server_lr = K lr. In AFA-CS each client keeps its own last gradient and sends by
how much it changed; the server keeps the mean over the clients that exist. No public code of the authors is
known.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch

from fedtide.algorithms.base import Algorithm, Change, Context
from fedtide.algorithms.fedavg import Down
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Nothing, Vector, Walk

Mine = TypeVar("Mine")


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    g: Vector  # what x follows: the mean of G_i over the cohort (CD) or over all clients (CS)


class Mean(NamedTuple):
    """What a client sends and, in AFA-CS, remembers."""

    g: Vector  # G_i: its mean gradient; AFA-CS sends by how much it changed


@dataclass(frozen=True, kw_only=True)
class Anarchic(Algorithm[Server, Down, Mine, Mean], Generic[Mine]):
    """What both share."""

    server_lr: float = 0.1  # eta

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)


@dataclass(frozen=True, kw_only=True)
class AfaCD(Anarchic[Nothing]):
    """AFA-CD: the server makes a step along the mean of the mean gradients that the cohort sends."""

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Mean, Nothing]:
        return Mean((down.x - y) / (walk.weight * walk.lr)), mine

    def aggregate(self, server: Server, up: Mean, cohort: Cohort) -> Server:
        g = up.g.mean(0)
        return Server(server.x - self.server_lr * g, g)


@dataclass(frozen=True, kw_only=True)
class AfaCS(Anarchic[Mean]):
    """The server follows the mean of all clients' last gradients; who was never seen counts as zero."""

    def memory(self, down: Down) -> Mean:
        return Mean(torch.zeros_like(down.x))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Mean) -> tuple[Mean, Mean]:
        g = (down.x - y) / (walk.weight * walk.lr)
        return Mean(g - mine.g), Mean(g)

    def row(self, mine: Mean) -> Vector:
        return mine.g

    def sent(self, up: Mean) -> Vector:
        return up.g

    def changed(self, server: Server, change: Change) -> Server:
        return Server(server.x, change.mean(server.g, change.left, change.came))

    def aggregate(self, server: Server, up: Mean, cohort: Cohort) -> Server:
        g = server.g + up.g.sum(0) / cohort.population
        return Server(server.x - self.server_lr * g, g)
