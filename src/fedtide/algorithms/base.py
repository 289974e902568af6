"""The contract of an algorithm: its hyper-parameters and a few pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

from torch import Tensor

from fedtide.core.task import Layout
from fedtide.core.types import Cohort, Nothing, Outputs, Vector, Walk

Server = TypeVar("Server")  # what the server keeps; has a field x, the global model
Down = TypeVar("Down")  # what every client of the cohort receives; has a field x, where it starts
Memory = TypeVar("Memory")  # what a client keeps between rounds
Upload = TypeVar("Upload")  # what a client sends

Look = Callable[
    [Vector], Outputs
]  # another model's outputs on the current batch, in evaluation mode


class Context(NamedTuple):
    """What an algorithm may know when a session begins."""

    layout: Layout
    population: int  # clients that exist


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC, Generic[Server, Down, Memory, Upload]):
    """Fields are numbers; methods touch nothing but their arguments; states are NamedTuples.

    `init`, `broadcast` and `aggregate` run on the server, the last with every upload field stacked to
    [U, ...]. The others run for one client, must not branch on values, and are vmapped as they are.
    """

    @abstractmethod
    def init(self, x: Vector, context: Context) -> Server:
        """The server's state when a session begins at model x."""

    @abstractmethod
    def broadcast(self, server: Server) -> Down:
        """What every client of the cohort receives."""

    @abstractmethod
    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        """The server's state after the uploads of a round."""

    def memory(self, down: Down) -> Memory:
        """What a client remembers when it takes part for the first time."""
        return cast(Memory, Nothing())

    def penalty(
        self, y: Vector, out: Outputs, look: Look, down: Down, mine: Memory
    ) -> Tensor | float:
        """Added to the loss of a batch: a scalar, or one value per example."""
        return 0.0

    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Memory) -> Vector:
        """What the local optimiser follows at step k."""
        return grad

    @abstractmethod
    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        """What a client sends after its last step, and what it remembers."""
