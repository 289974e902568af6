"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, Algorithm 1 with option II.

The paper's clients run plain SGD. With momentum, line 12 divides x - y by ||a||_1 lr in place of K lr, where
||a||_1 of FedNova counts how often gradients enter x - y (K for plain SGD; also for Adam, which has no such
number). This is our reading, not the paper's.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Change, Context, stacked
from fedtide.core.errors import require
from fedtide.core.mix import even
from fedtide.core.types import Cohort, Vector, Walk


class Server(NamedTuple):
    """State of the server, which it also broadcasts."""

    x: Vector
    c: Vector  # server control variate


class Memory(NamedTuple):
    """State of a client."""

    c: Vector  # c_i


class Upload(NamedTuple):
    """What a client sends (line 13)."""

    dx: Vector  # y_i - x
    dc: Vector  # c_i^+ - c_i


@dataclass(frozen=True, kw_only=True)
class Scaffold(Algorithm[Server, Server, Memory, Upload]):
    """Control variates correct the drift of every local step."""

    server_lr: float = 1.0  # eta_g

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Server:
        return server

    def memory(self, down: Server) -> Memory:
        return Memory(torch.zeros_like(down.x))

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Server, mine: Memory) -> Vector:
        return grad - mine.c + down.c  # line 10

    @stacked
    def report(self, y: Vector, walk: Walk, down: Server, mine: Memory) -> tuple[Upload, Memory]:
        c = mine.c - down.c + (down.x - y) / (walk.weight * walk.lr)  # line 12, option II
        return Upload(y - down.x, c - mine.c), Memory(c)  # lines 13-14

    def row(self, mine: Memory) -> Vector:
        return mine.c

    def sent(self, up: Upload) -> Vector:
        return up.dc

    def changed(self, server: Server, change: Change) -> Server:
        return Server(server.x, change.mean(server.c, change.left, change.came))

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        return even(share)

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        present = len(cohort.ids) / cohort.population  # |S| / N
        return Server(
            x=server.x + self.server_lr * total.dx,  # lines 16-17
            c=server.c + present * total.dc,
        )
