"""FedAmplify: Wang and Ji, "A Unified Analysis of Federated Learning with Arbitrary Client Participation",
NeurIPS 2022, Algorithm 1: generalised FedAvg with amplified updates.

Between two amplifications it is FedAvg. Rounds are those in which the server aggregates.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context
from fedtide.algorithms.fedavg import Down, Upload
from fedtide.core.errors import require
from fedtide.core.mix import even
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    past: Vector  # x_{t_0}: the model at the last amplification
    made: Tensor  # rounds since then


@dataclass(frozen=True, kw_only=True)
class FedAmplify(Algorithm[Server, Down, Nothing, Upload]):
    """Every P rounds, about the time in which everybody was there, the way made since is amplified."""

    period: int = 500  # P
    server_lr: float = 10.0  # eta
    weights: Literal["examples", "equal"] = "examples"

    def __post_init__(self) -> None:
        require(self.period >= 1, "algorithm.period", "at least 1", self.period)
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, x, x.new_zeros(()))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Upload, Nothing]:
        return Upload(y - down.x), mine

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        return even(share) if self.weights == "equal" else share

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        x, made = server.x + total.delta, server.made + 1
        if made < self.period:
            return Server(x, server.past, made)
        x = x + (self.server_lr - 1) * (x - server.past)
        return Server(x, x, made * 0)
