"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, Algorithm 1. The server rule is a setting, so FedAvgM, FedAdam, FedYogi and FedAdagrad are
`server = "momentum"` and so on, here and in every algorithm that builds on this one.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, stacked
from fedtide.algorithms.server import ServerAverage, ServerRule
from fedtide.core.mix import even
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
    """What FedAvg and its relatives share: the mean update, then the server rule.

    Clients count by their share of the cohort's examples or, as in many later papers, all the same.
    """

    server: ServerRule = field(default_factory=ServerAverage)
    weights: Literal["examples", "equal"] = "examples"

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, self.server.start(x))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    @stacked
    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        return Upload(y - down.x), mine

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        return even(share) if self.weights == "equal" else share

    @property
    def counts_examples(self) -> bool:
        return self.weights == "examples"

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        return self.follow(server, total.delta)

    def follow(self, server: Server, delta: Vector) -> Server:
        """The server's state after its rule has moved the model along `delta`."""
        return Server(*self.server.step(server.x, delta, server.rule))


@dataclass(frozen=True, kw_only=True)
class FedAvg(Averaging[Nothing]):
    """Clients train alone; the server averages."""
