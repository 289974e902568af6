"""The contract of an algorithm: its hyper-parameters and a few pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

from torch import Tensor

from fedtide.core.mix import weighted
from fedtide.core.types import Cohort, Nothing, Outputs, Vector, Walk
from fedtide.tasks.task import Layout

Server = TypeVar("Server")  # what the server keeps; has a field x, the global model
Down = TypeVar("Down")  # what every client of the cohort receives; has a field x, where it starts
Memory = TypeVar("Memory")  # what a client keeps between rounds
Upload = TypeVar("Upload")  # what a client sends

Look = Callable[
    [Vector], Outputs
]  # another model's outputs on the current batch, in evaluation mode


_UNDEFINED = "{} must define aggregate, or weigh and move"


class Context(NamedTuple):
    """What an algorithm may know when a session begins."""

    layout: Layout
    population: int  # clients that exist


class Change(NamedTuple):
    """A changed population, as the server sees it while the model stays.

    `left` and `came` are sums over clients of `Algorithm.row`, in float64; a client that never took part
    adds nothing to them.
    """

    present: Tensor  # [N]: the ids of the clients that exist now
    before: int  # how many existed before; 0: all rows are counted anew, and all that exist `came`
    left: Any  # the rows of those who left
    came: Any  # the rows of those who came: not zero if they have taken part in earlier rounds
    start: bool  # did a start choose to go on from this model, or did clients only come and go?

    def mean(self, old: Tensor, left: Tensor, came: Tensor) -> Tensor:
        """The mean over those who exist now, given `old`, the mean over those who existed before."""
        total = self.before * old.to(left) - left + came
        return (total / len(self.present)).to(old)

    def total(self, old: Tensor, left: Tensor, came: Tensor) -> Tensor:
        """The sum over those who exist now, given `old`, the sum over those who existed before."""
        return ((old.to(left) if self.before else 0) - left + came).to(old)


class Survey(NamedTuple):
    """All examples that a client holds, for an algorithm that looks at them; models in evaluation mode."""

    gradient: Callable[[Vector], Vector]  # of the mean loss over all of them
    outputs: Callable[[Vector], Outputs]  # on all of them
    targets: Tensor  # [N]
    mask: Tensor  # [N]: 0 where a row only fills the shape
    layout: Layout
    epochs: int  # local epochs of a round; 0 where steps are counted
    over: bool  # the last local step is made


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC, Generic[Server, Down, Memory, Upload]):
    """Fields are numbers; methods touch nothing but their arguments; states are NamedTuples.

    `init`, `broadcast` and `aggregate` run on the server, the last with every upload field stacked to
    [U, ...]. The others run for one client, must not branch on values, and are vmapped as they are.

    Few algorithms need more than mini-batches. One that `surveys` looks at all of a client's examples at
    the beginning of every local epoch ("epochs") and when the last step is made (also "end"). What `survey`
    returns takes the place of `mine` until `report`, which returns what is kept; nobody else pays for it.

    An algorithm whose server needs only a weighted sum of the uploads defines `weigh` and `move` instead of
    `aggregate`; engines may then add uploads up where they are made.

    An algorithm whose server keeps a mean over all clients of something they remember defines `row`, `sent`
    and `changed`, so that clients who leave or come are taken out of that mean or into it.
    """

    surveys: ClassVar[Literal["never", "epochs", "end"]] = "never"
    # Are `direction` and `report` right for many clients at once, [U, dim] each (`walk`: [U, 1])? Said by
    # the class that defines them.
    stacks: ClassVar[bool] = True

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        order = [each for each in cls.__mro__ if {"aggregate", "weigh"} & set(vars(each))]
        if "weigh" not in vars(order[0]):  # another aggregate, other weights
            cls.weigh = Algorithm.weigh  # type: ignore[method-assign]

    @abstractmethod
    def init(self, x: Vector, context: Context) -> Server:
        """The server's state when a session begins at model x."""

    def restart(self, server: Server, x: Vector, context: Context) -> Server:
        """The server's state when a start installs model x; `server` is the state before."""
        return self.init(x, context)

    @abstractmethod
    def broadcast(self, server: Server) -> Down:
        """What every client of the cohort receives."""

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        """The server's state after the uploads of a round. Define this, or `weigh` and `move`."""
        weights = self.weigh(cohort.share, cohort.walk)
        if weights is None:
            raise NotImplementedError(_UNDEFINED.format(type(self).__name__))
        return self.move(server, cast(Upload, weighted(up, weights)), cohort)

    def weigh(self, share: Tensor, walk: Walk) -> Tensor | None:
        """How much each upload counts [U], if the server needs only their weighted sum; else None."""
        return None

    def move(self, server: Server, total: Upload, cohort: Cohort) -> Server:
        """The server's state after a round, given the weighted sum of the uploads."""
        raise NotImplementedError(_UNDEFINED.format(type(self).__name__))

    def memory(self, down: Down) -> Memory:
        """What a client remembers when it takes part for the first time."""
        return cast(Memory, Nothing())

    def row(self, mine: Memory) -> Any:
        """What the server's mean counts of a client that remembers `mine`; zero before it takes part.

        Like `sent`, it must also be right for a stack of clients.
        """
        return Nothing()

    def sent(self, up: Upload) -> Any:
        """By how much an upload changes its client's `row`."""
        return Nothing()

    def changed(self, server: Server, change: Change) -> Server:
        """The server's state when clients have left or come and the model stays."""
        return server

    def facts(self, server: Server, cohort: Cohort) -> Mapping[str, Any]:
        """What the journal should say about the server's state after a round."""
        return {}

    def penalty(
        self, y: Vector, out: Outputs, look: Look, down: Down, mine: Memory
    ) -> Tensor | float:
        """Added to the loss of a batch: one value per example, or a scalar that does not look at examples.

        (Batches are filled up to one shape; what is said of the filling is left out example by example.)
        """
        return 0.0

    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Memory) -> Vector:
        """What the local optimiser follows at step k."""
        return grad

    def rate(self, lr: float, down: Down, mine: Memory) -> Tensor | float:
        """The learning rate of this step; `lr` is the one that the study asks for."""
        return lr

    def survey(self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Memory) -> Memory:
        """What a client notes before this local epoch (0, 1, ...), or when it has made so many."""
        return mine

    def has_own(self, method: str) -> bool:
        """Does it do anything in this method? A wrapper asks the algorithm that it wraps."""
        return getattr(type(self), method) is not getattr(Algorithm, method)

    def stacks_in(self, method: str) -> bool:
        """Does the class that defines this method say that it `stacks`? A wrapper asks, as above."""
        author = next(each for each in type(self).__mro__ if method in vars(each))
        return bool(vars(author).get("stacks", False))

    @abstractmethod
    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        """What a client sends after its last step, and what it remembers."""
