"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1.

The form of the paper: one alpha for all clients. (The authors' code divides it by each client's share.)

A changed population, which the paper does not have: h is the mean of the clients' g_i, and x carries
-h / alpha, so that taking the g_i of those who left out of h would throw the model far away. But FedDyn
converges from any g_i as long as h is their mean. So h stays, and an offset b makes up for the change:
clients use g_i - b, and h = mean(g_i) - b.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Change, Context, stacked
from fedtide.core.errors import require
from fedtide.core.mix import even
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    h: Vector
    b: Vector | Nothing = Nothing()  # mean(g_i) - h, once clients have come or gone


class Down(NamedTuple):
    """Every client receives the global model."""

    x: Vector
    b: Vector | Nothing = Nothing()


class Memory(NamedTuple):
    """State of a client."""

    g: Vector  # the gradient of its loss at its last model, once it has converged


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # y - x


@dataclass(frozen=True, kw_only=True)
class FedDyn(Algorithm[Server, Down, Memory, Upload]):
    """A dynamic linear term makes the clients' optima meet at the global one."""

    alpha: float = 0.01

    def __post_init__(self) -> None:
        require(self.alpha > 0, "algorithm.alpha", "positive", self.alpha, "For 0 use fedavg.")

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x, server.b)

    def memory(self, down: Down) -> Memory:
        return Memory(torch.zeros_like(down.x))

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Memory) -> Vector:
        step = grad - mine.g + self.alpha * (y - down.x)
        return step if isinstance(down.b, Nothing) else step + down.b

    @stacked
    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        return Upload(y - down.x), Memory(mine.g - self.alpha * (y - down.x))

    def row(self, mine: Memory) -> Vector:
        return mine.g

    def sent(self, up: Upload) -> Vector:
        return -self.alpha * up.delta

    def changed(self, server: Server, change: Change) -> Server:
        g = server.h if isinstance(server.b, Nothing) else server.h + server.b
        return Server(server.x, server.h, change.mean(g, change.left, change.came) - server.h)

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        return even(share)

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        present = len(cohort.ids) / cohort.population  # |P_t| / m
        h = server.h - self.alpha * present * total.delta
        return Server(server.x + total.delta - h / self.alpha, h, server.b)
