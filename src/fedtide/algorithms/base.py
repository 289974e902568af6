"""The contract of an algorithm: its hyper-parameters and a few pure functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

from torch import Tensor

from fedtide.core.kinds import check_is_dataclass
from fedtide.core.layout import Layout
from fedtide.core.mix import weighted
from fedtide.core.types import Batch, Cohort, Nothing, Outputs, Vector, Walk

Server = TypeVar("Server")  # what the server keeps; has a field x, the global model
Down = TypeVar("Down")  # what every client of the cohort receives; has a field x, where it starts
Memory = TypeVar("Memory")  # what a client keeps between rounds
Upload = TypeVar("Upload")  # what a client sends

# The outputs of another model on the current batch, in evaluation mode.
Look = Callable[[Vector], Outputs]
Method = TypeVar("Method", bound=Callable[..., Any])

_UNDEFINED = "{} must define aggregate, or weigh and move"


def stacked(method: Method) -> Method:
    """Mark a `direction` or `report` that also takes many clients at once: [U, dim], walk fields [U, 1].

    Engines call a marked method once for all clients; they vmap any other. A subclass that overrides the
    method marks its own version, or leaves it unmarked.
    """
    method.is_stacked = True  # type: ignore[attr-defined]
    return method


class Teacher(NamedTuple):
    """A distillation target: weight * KL(teacher || student) is added to the loss of every example."""

    x: Vector  # the teacher's model, one of the vectors that the server broadcasts
    weight: float


class Context(NamedTuple):
    """What an algorithm is given, besides the model, when training starts or starts again."""

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
    start: bool  # a start was due and kept this model; False: clients only came and went

    def mean(self, old: Tensor, left: Tensor, came: Tensor) -> Tensor:
        """The mean of a client's row over the clients that exist now; `old` is the mean before the change."""
        total = self.before * old.to(left) - left + came
        return (total / len(self.present)).to(old)

    def total(self, old: Tensor, left: Tensor, came: Tensor) -> Tensor:
        """The sum of rows over the clients that exist now; `old` is the sum before the change."""
        return ((old.to(left) if self.before else 0) - left + came).to(old)


class Survey(NamedTuple):
    """All examples of a client, for an algorithm with `surveys`; models are in evaluation mode."""

    gradient: Callable[[Vector], Vector]  # of the mean loss over all of them
    outputs: Callable[[Vector], Outputs]  # on all of them
    targets: Tensor  # [N]
    mask: Tensor  # [N]: 0 where a row only fills the shape
    layout: Layout
    epochs: int  # local epochs of a round; 0 where steps are counted
    over: bool  # True after the last local step


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC, Generic[Server, Down, Memory, Upload]):
    """Fields are numbers; methods are pure functions of their arguments; states are NamedTuples of tensors.

    `init`, `broadcast` and `aggregate` run on the server; `aggregate` gets every upload field stacked to
    [U, ...]. All other methods run for one client and are vmapped over clients, so they must not branch on
    values of tensors (an algorithm that does runs on `engine = "loop"` only).

    `surveys` asks for a look at all examples of a client: once before the first local step ("begin"), before
    every local epoch and after the last step ("epochs"), or after the last step only ("end"). What `survey`
    returns takes the place of `mine` until `report`, which returns what the client remembers.

    An algorithm whose server needs only a weighted sum of the uploads defines `weigh` and `move` instead of
    `aggregate`; engines may then add uploads up where they are made.

    An algorithm whose server keeps a mean over all clients of something they remember defines `row`, `sent`
    and `changed`, so that the mean follows clients that leave or come.

    `needs` says if it works only where targets are labels, or only where a model has features (`is_split`).
    """

    surveys: ClassVar[Literal["never", "begin", "epochs", "end"]] = "never"
    needs: ClassVar[Literal["nothing", "labels", "features"]] = "nothing"  # of the task

    def __new__(cls, *_: Any, **__: Any) -> Self:
        check_is_dataclass(cls, "algorithm")
        return super().__new__(cls)

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
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Down, mine: Memory
    ) -> Tensor | float:
        """A term added to the loss of a batch: one value per example [B], or a scalar that ignores examples.

        Batches are filled up to one shape; `batch.mask` is 0 for filled rows, and values for them are
        ignored.
        """
        return 0.0

    def teacher(self, down: Down) -> Teacher | None:
        """The model whose outputs the clients' outputs are held to; None: no distillation."""
        return None

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Memory) -> Vector:
        """What the local optimiser follows at step k."""
        return grad

    def rate(self, lr: float, down: Down, mine: Memory) -> Tensor | float:
        """The learning rate of this step; `lr` is the one that the study asks for."""
        return lr

    def survey(self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Memory) -> Memory:
        """What a client notes from all its examples, before local epoch 0, 1, ... or after the last step."""
        return mine

    @property
    def weighs(self) -> bool:
        """Does the server need only a weighted sum of the uploads? Then `weigh` and `move` are defined."""
        return type(self).weigh is not Algorithm.weigh

    @property
    def counts_examples(self) -> bool:
        """Do clients weigh by their numbers of examples in the server's mean? Otherwise equally."""
        return False

    def has_own(self, method: str) -> bool:
        """Is this method overridden? A wrapper asks the algorithm that it wraps."""
        return getattr(type(self), method) is not getattr(Algorithm, method)

    def is_stacked(self, method: str) -> bool:
        """Is this method marked `@stacked`? A wrapper asks the algorithm that it wraps."""
        return bool(getattr(getattr(type(self), method), "is_stacked", False))

    @abstractmethod
    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        """What a client sends after its last step, and what it remembers."""
