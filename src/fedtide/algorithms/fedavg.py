"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, Algorithm 1. The server rule is a setting, so FedAvgM, FedAdam, FedYogi and FedAdagrad are
`server = "momentum"` and so on, here and in every algorithm that builds on this one.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from fedtide.algorithms.base import Algorithm, Context
from fedtide.algorithms.server import Average, ServerRule
from fedtide.core.types import Cohort, Nothing, Vector, Walk

Memory = TypeVar("Memory")


class Server(NamedTuple):
    """State of FedAvg."""

    x: Vector  # w_t
    rule: Any  # state of the server rule


class Down(NamedTuple):
    """Every client receives the global model."""

    x: Vector


class Upload(NamedTuple):
    """Every client sends how far it moved."""

    delta: Vector  # y - x


@dataclass(frozen=True, kw_only=True)
class Averaging(Algorithm[Server, Down, Memory, Upload], Generic[Memory]):
    """What FedAvg and its relatives share: the mean update by share of examples, then the server rule."""

    server: ServerRule = field(default_factory=Average)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, self.server.start(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        return Upload(y - down.x), mine

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        return Server(*self.server.step(server.x, cohort.share @ up.delta, server.rule))


@dataclass(frozen=True, kw_only=True)
class FedAvg(Averaging[Nothing]):
    """Clients train alone; the server averages by share of examples."""
