"""What every engine shares: the clients' data and memories, and the shape of a round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.trees import repeated, rows, tree_map
from fedtide.core.types import (
    Batch,
    Buffers,
    Cohort,
    Examples,
    Ids,
    Model,
    Nothing,
    Training,
    Vector,
    Walk,
)
from fedtide.data.batches import ClientData, Picks
from fedtide.tasks.task import Task
from fedtide.training.client import AnyAlgorithm, Lesson, Report, Row
from fedtide.training.memory import Memory
from fedtide.training.optimisers import Rule

EVALUATION_BLOCK = (
    1024  # examples per forward pass; fixed, so that sums do not depend on the machine
)

BufferPolicy = Literal["average", "local", "frozen"]

NOBODY: Ids = np.empty(0, dtype=np.int64)
ROWS_AT_ONCE = 128  # clients whose memories are fetched together to be added up

In = TypeVar("In")
Out = TypeVar("Out")


class Traits(NamedTuple):
    """What a trial step showed about a model."""

    is_random: bool  # it draws random numbers while training (dropout)
    mixes: bool  # an example's output depends on the other examples of its batch (BatchNorm)
    vmap_error: str  # why it cannot be vectorised; empty if it can


class Result(NamedTuple):
    """What comes back from a cohort: every tensor stacked, [U, ...]."""

    ids: Ids  # who answered: on a network some may not
    up: Any
    buffers: Buffers
    training: Training
    walk: Walk
    is_sum: bool = False  # is `up` a weighted sum over the cohort instead?
    gather: float = 0.0  # seconds that went into choosing and fetching examples
    facts: Mapping[str, Any] = {}  # for the journal
    rows: Any = (
        Nothing()
    )  # what clients will remember if the server counts their uploads: see `keep`
    forgot: Ids = NOBODY  # clients that had lost what they remembered

    @property
    def means(self) -> dict[str, float]:
        """Training loss and accuracy, the mean over the cohort."""
        loss, accuracy = (float(each.mean()) for each in self.training)
        return {"train_accuracy": accuracy, "train_loss": loss}

    def aggregated(self, algorithm: AnyAlgorithm, server: Any, cohort: Cohort) -> Any:
        """The server's state after this round."""
        step = algorithm.move if self.is_sum else algorithm.aggregate
        return step(server, self.up, cohort)


class Ground(NamedTuple):
    """All that the clients of a cohort hold, for an algorithm that surveys."""

    places: NDArray[np.int64]  # [U, N]
    mask: NDArray[np.bool_]  # [U, N]
    stride: NDArray[np.int64]  # [U]: steps of a local epoch


class Errand(NamedTuple):
    """One round's work for a cohort, on its way to the clients."""

    ids: Ids
    rows: Row  # stacked
    picks: Picks
    walk: Walk  # [U] each
    t: int
    purpose: str
    ground: Ground | None = None
    weights: Tensor | None = None  # [U]: add uploads up with these

    @property
    def address(self) -> tuple[str | int, ...]:
        """Of the round's random numbers."""
        return self.purpose, self.t

    def some(self, index: slice | NDArray[np.int64]) -> Errand:
        """The same for some clients; a slice copies nothing."""
        device = self.walk.steps.device
        at = index if isinstance(index, slice) else torch.from_numpy(index).to(device)
        picks, ground = rows(self.picks, index), self.ground and rows(self.ground, index)
        mine, walk = rows(self.rows, at), rows(self.walk, at)
        return self._replace(
            ids=self.ids[index], rows=mine, picks=picks, walk=walk, ground=ground, weights=None
        )


class Given(NamedTuple):
    """What a cohort is to do in a round."""

    algorithm: AnyAlgorithm
    rule: Rule
    lr: float
    down: Any
    buffers: Buffers
    ids: Ids
    steps: NDArray[np.int64]
    ages: NDArray[np.int64]  # [U]: rounds since each client came
    t: int
    purpose: str  # a part of the address of its random numbers
    weights: Tensor | None  # [U]: add uploads up with these


@dataclass(eq=False)
class Engine(ABC):
    """Runs the local rounds of a cohort. Memories stay with the engine as they stay with real clients."""

    task: Task
    data: ClientData
    traits: Traits
    buffers: BufferPolicy = "average"
    workers: int = 1  # threads across clients; results do not depend on it
    chunk: int = 0  # clients stacked at once; 0 chooses by memory
    why: str = ""  # why this engine was chosen

    made_with: ClassVar[str] = ""  # what the last bits of a run depend on, beside torch
    target: ClassVar[str] = ""  # the processor that code of its own was compiled for

    def __post_init__(self) -> None:
        self.memory = Memory()
        self._fetches: list[float] = []  # seconds
        self._threads = 1  # that work in this round
        self._pool = ThreadPoolExecutor(
            self.workers, initializer=torch.set_num_threads, initargs=(1,)
        )

    def run(
        self,
        algorithm: AnyAlgorithm,
        rule: Rule,
        lr: float,
        down: Any,
        buffers: Buffers,
        ids: Ids,
        steps: NDArray[np.int64],
        t: int,
        purpose: str = "batch",
        adds: bool = False,
        ages: NDArray[np.int64] | None = None,
    ) -> Result:
        """One round of these clients, from `down`: `steps[u]` local steps each, at least one.

        If it `adds`, nobody asks for single uploads: where the algorithm weighs them, they are added up.
        `ages` are the rounds since each client came; without them all exist since round 0. No client's
        memory changes until `keep` is called.
        """
        ages = np.full(len(ids), t) if ages is None else ages
        weights = None
        if adds:
            weights = algorithm.weigh(self.share(t, ids), walked(rule, lr, steps, ages, down.x))
        return self.perform(
            Given(algorithm, rule, lr, down, buffers, ids, steps, ages, t, purpose, weights)
        )

    @abstractmethod
    def perform(self, given: Given) -> Result:
        """`run`, as each engine does it."""

    def keep(self, result: Result, ids: Ids) -> None:
        """Make what a round has taught clients their memory: of these, whose uploads were counted."""
        places = np.flatnonzero(np.isin(result.ids, ids))
        kept = result.rows
        if len(places) < len(result.ids):
            kept = rows(kept, torch.from_numpy(places).to(result.walk.steps.device))
        self.memory.put(result.ids[places], kept)

    def row_sum(self, algorithm: AnyAlgorithm, ids: Ids, down: Any) -> Any:
        """The sum of what the server's mean counts of these clients: see `Algorithm.row`.

        In float64, in the order of the ids. `down` tells the shape; newcomers and unseen clients add zero.
        """
        blank = algorithm.row(algorithm.memory(down))
        total = tree_map(lambda leaf: torch.zeros(leaf.shape, dtype=torch.float64), blank)
        ids = np.sort(ids)
        for first in range(0, len(ids), ROWS_AT_ONCE):
            found, kept = self.memory.kept(ids[first : first + ROWS_AT_ONCE])
            if len(found):
                each = self.rows_counted(algorithm, kept)
                total = tree_map(lambda sum_, leaf: sum_ + leaf.cpu().double().sum(0), total, each)
        return total

    def rows_counted(self, algorithm: AnyAlgorithm, kept: Any) -> Any:
        """`Algorithm.row` of stacked entries of the engine's memory."""
        return algorithm.row(kept.mine)

    def share(self, t: int, ids: Ids) -> Tensor:
        """How much of a cohort's examples each of its clients holds: [U]."""
        sizes = self.data.holdings.sizes(t, ids)
        return torch.from_numpy(sizes / sizes.sum()).to(self.task.initial.x)

    def newcomer(self, algorithm: AnyAlgorithm, rule: Rule, down: Any, buffers: Buffers) -> Row:
        """What a client remembers when it takes part for the first time."""
        carried = rule.start(down.x) if rule.carried else Nothing()
        return Row(algorithm.memory(down), carried, buffers if self.buffers == "local" else {})

    def evaluate(self, model: Model, examples: Examples) -> tuple[float, float]:
        """Accuracy and mean loss on these examples; not numbers where there are none."""
        if not len(examples):
            return math.nan, math.nan

        def block(first: int) -> tuple[float, float]:
            inputs, targets = examples.between(first, first + EVALUATION_BLOCK)
            with torch.no_grad():
                logits = self.task.logits(model, inputs)
            right = (logits.argmax(-1) == targets).sum()
            return float(right), float(self.task.loss(logits, targets).sum())

        sums = self.across(block, range(0, len(examples), EVALUATION_BLOCK))
        right, loss = (sum(each) / len(examples) for each in zip(*sums, strict=True))
        return right, loss

    def across(self, work: Callable[[In], Out], parts: Sequence[In]) -> Iterator[Out]:
        """`work` on every part, over the engine's threads; results in order, each when it is there."""
        self._threads = min(self.workers, len(parts))
        return (map if self._threads == 1 else self._pool.map)(work, parts)

    def close(self) -> None:
        self._pool.shutdown()


class InProcess(Engine):
    """An engine whose clients live in this process."""

    def perform(self, given: Given) -> Result:
        algorithm, rule, lr, down, buffers, ids, steps, ages, t, purpose, weights = given
        lesson = Lesson(self.task, algorithm, rule, lr, down, buffers, self.data.batching.epochs)
        local = self.buffers == "local"
        mine: Row = self.memory.take(ids, self.newcomer(algorithm, rule, down, buffers))
        if not rule.carried:
            mine = mine._replace(rule=repeated(rule.start(down.x), len(ids)))
        walk = walked(rule, lr, steps, ages, down.x)
        self._fetches.clear()
        self._threads = 1
        with self.fetching():
            picks = self.data.picks(t, ids, steps, purpose)
        ground = None
        if algorithm.surveys != "never":
            stride = self.data.batching.per_pass(self.data.holdings.sizes(t, ids))
            ground = Ground(*self.data.everything(t, ids), stride)
        with torch.no_grad(), lone_examples_explained(t):
            errand = Errand(ids, mine, picks, walk, t, purpose, ground, weights)
            done = self.cohort(lesson, errand)
        kept = done.row._replace(buffers=done.buffers if local else {})
        # Threads fetch beside each other; the first entry is from before they began.
        gather = self._fetches[0] + sum(self._fetches[1:]) / self._threads
        adds = weights is not None
        return Result(ids, done.up, done.buffers, done.training, walk, adds, gather, rows=kept)

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Note how long this takes: it goes into `Result.gather`."""
        began = perf_counter()
        yield
        self._fetches.append(perf_counter() - began)

    @abstractmethod
    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        """The reports of a cohort, in the order of its ids: see `Reports`."""

    def batch(self, index: NDArray[np.int64], mask: NDArray[np.bool_]) -> Batch:
        """The examples at `index`, ready for a step."""
        examples = self.data.examples
        device = examples.targets.device
        with self.fetching():
            inputs, targets = examples.take(torch.from_numpy(index).to(device))
        return Batch(inputs, targets, torch.from_numpy(mask).to(device, torch.get_default_dtype()))


def walked(
    rule: Rule, lr: float, steps: NDArray[np.int64], ages: NDArray[np.int64], x: Vector
) -> Walk:
    """How clients move that make so many steps."""
    made, age = (torch.as_tensor(each).to(x) for each in (steps, ages))
    return Walk(made, torch.full_like(made, lr), rule.weight(made), age)


@contextmanager
def lone_examples_explained(t: int) -> Iterator[None]:
    """BatchNorm refuses a batch of one example; say what to do about it."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise EngineError(
            f"round {t}: a model with BatchNorm must see at least 2 examples in every batch. Got a "
            "client whose last batch holds 1. Choose another train.batch_size, or sampling = "
            "'replacement' with train.steps."
        ) from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Give dropout its own numbers and leave the global generator as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
