"""FedACG: Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated Client
Gradient", CVPR 2024, Algorithm 1.

Beta is that of the half form, beta/2 ||y - x'||^2; the authors' code writes 1e-3 ||y - x'||^2, which is
beta = 2e-3 here. Clients count equally, as in the paper.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, stacked
from fedtide.core.errors import require
from fedtide.core.mix import even
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    m: Vector  # global momentum


class Down(NamedTuple):
    """Clients start ahead of the global model."""

    x: Vector  # x + lambda m


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # y - (x + lambda m)


@dataclass(frozen=True, kw_only=True)
class FedACG(Algorithm[Server, Down, Nothing, Upload]):
    """The server's momentum looks ahead; clients start there and stay near."""

    lambda_: float = 0.85
    beta: float = 0.002

    def __post_init__(self) -> None:
        require(0 <= self.lambda_ < 1, "algorithm.lambda", "in [0, 1)", self.lambda_)
        require(self.beta >= 0, "algorithm.beta", "zero or positive", self.beta)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x + self.lambda_ * server.m)

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Nothing) -> Vector:
        return grad + self.beta * (y - down.x)

    @stacked
    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Upload, Nothing]:
        return Upload(y - down.x), mine

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        return even(share)

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        m = self.lambda_ * server.m + total.delta
        return Server(server.x + m, m)
