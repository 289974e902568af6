"""What every engine shares: the clients' data and memories, and the shape of a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.mix import mixed, widest
from fedtide.core.trees import repeated, rows, tree_map, width
from fedtide.core.types import (
    NO_LUCK,
    Batch,
    Buffers,
    Cohort,
    Examples,
    Ids,
    Inputs,
    Luck,
    Model,
    Nothing,
    Scores,
    Tested,
    Training,
    Vector,
    Walk,
)
from fedtide.data.batches import ClientData, Picks
from fedtide.engines.fast.chain import chain_of, outputs
from fedtide.engines.fast.inplace import written_in_place
from fedtide.engines.malloc import keep_freed_memory
from fedtide.tasks.objective import Meters
from fedtide.tasks.scores import Sums
from fedtide.tasks.task import Task
from fedtide.training.explain import TRAINING, check_memory, explained
from fedtide.training.memory import Memory
from fedtide.training.messages import AnyAlgorithm, Broadcast, Report, Row
from fedtide.training.train import BufferPolicy

# Examples per forward pass; fixed, so that sums do not depend on the machine.
EVALUATION_BLOCK = 1024
SEQUENCE_BLOCK = 64
NO_CLIENTS: Ids = np.empty(0, dtype=np.int64)
ROWS_AT_ONCE = 128  # clients whose memories are fetched together to be added up

In = TypeVar("In")
Out = TypeVar("Out")


class Traits(NamedTuple):
    """Properties of a model, found by a trial step."""

    is_random: bool  # it draws random numbers while training (dropout)
    mixes: bool  # an example's output depends on the other examples of its batch (BatchNorm)
    vmap_error: str = (
        ""  # why model and algorithm cannot be stacked over clients; empty if they can
    )


class Result(NamedTuple):
    """What comes back from a cohort: every tensor stacked, [U, ...]."""

    ids: Ids  # the clients that answered: on a network some may not
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
    forgot: Ids = NO_CLIENTS  # clients that had lost what they remembered
    owners: Ids | None = None  # whose `rows` these are; None: of `ids`

    @classmethod
    def none(cls, x: Vector, facts: Mapping[str, Any] = {}) -> Result:
        """The result of a round in which no client answered."""
        no = x.new_zeros(0)
        return cls(NO_CLIENTS, Nothing(), {}, Training(no, no), Walk(no, no, no, no), facts=facts)

    @property
    def trained(self) -> Ids:
        """The clients that trained, whether their uploads were accepted or not."""
        return self.ids if self.owners is None else self.owners

    @property
    def means(self) -> dict[str, float]:
        """Training loss and credit, the mean over the cohort."""
        return {name: float(each.mean()) for name, each in self.training._asdict().items()}

    def aggregated(self, algorithm: AnyAlgorithm, server: Any, cohort: Cohort) -> Any:
        """The server's state after this round."""
        step = algorithm.move if self.is_sum else algorithm.aggregate
        return step(server, self.up, cohort)


class Chunk(NamedTuple):
    """One round's work of some clients: what differs from client to client."""

    ids: Ids
    rows: Row  # stacked
    picks: Picks
    walk: Walk  # [U] each
    everything: Picks | None = (
        None  # [U, N]: all examples of each client, where the algorithm surveys
    )
    stride: NDArray[np.int64] | None = None  # [U]: steps of a local epoch, where it surveys
    weights: Tensor | None = None  # [U]: uploads are added up with these

    def some(self, index: slice | NDArray[np.int64]) -> Chunk:
        """The same for some clients; a slice copies nothing."""
        device = self.walk.steps.device
        at = index if isinstance(index, slice) else torch.from_numpy(index).to(device)
        return Chunk(
            ids=self.ids[index],
            rows=rows(self.rows, at),
            picks=rows(self.picks, index),
            walk=rows(self.walk, at),
            everything=self.everything and rows(self.everything, index),
            stride=None if self.stride is None else self.stride[index],
        )


@dataclass(eq=False)
class Engine(ABC):
    """Runs the local rounds of a cohort. What clients remember stays with the engine."""

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
        plain = self.task.objective.is_plain and self.task.is_whole
        self.chain = chain_of(self.task.structure) if plain else None  # None: not a chain of layers
        self.memory = Memory()
        self._fetches: list[float] = []  # seconds
        self._threads = 1  # that work in this round
        self._pool = ThreadPoolExecutor(
            self.workers, initializer=torch.set_num_threads, initargs=(1,)
        )

    def open(self) -> None:
        """Prepare this process for a run."""
        keep_freed_memory()

    @abstractmethod
    def run(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, weights: Tensor | None = None
    ) -> Result:
        """One round of these clients from `broadcast`: `walk.steps[u]` local steps each, at least one.

        With `weights` [U], the result holds the weighted sum of the uploads. No client's memory changes
        until `keep` is called.
        """

    def keep(self, result: Result, ids: Ids) -> None:
        """Store what these clients remember of a round: those whose uploads the server has counted."""
        trained, kept = result.trained, result.rows
        places = np.flatnonzero(np.isin(trained, ids))
        if len(places) < len(trained):
            kept = rows(kept, torch.from_numpy(places).to(result.walk.steps.device))
        self.memory.put(trained[places], kept)

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

    def newcomer(self, broadcast: Broadcast) -> Row:
        """What a client remembers when it takes part for the first time."""
        rule, down = broadcast.rule, broadcast.down
        carried = rule.start(down.x) if rule.carried else Nothing()
        own: Buffers = broadcast.buffers if self.buffers == "local" else {}
        return Row(broadcast.algorithm.memory(down), carried, own)

    def outputs(self, model: Model, inputs: Inputs) -> Tensor:
        """The logits of a model in evaluation mode; chains of linear layers are computed directly."""
        if isinstance(inputs, Tensor) and self.chain and self.chain[0].inputs == width(inputs):
            return outputs(self.chain, model.x[None], inputs[None])[-1][0].mT
        return self.task.view(model.x, model.buffers, self.task.arranged(inputs)).logits

    def evaluate(self, model: Model, examples: Examples) -> Scores | None:
        """How good a model is on these examples; None if there are none."""
        objective = self.task.objective
        meters = Meters(objective) if objective.has_meters else None
        sums = self.sums(model, examples, meters)
        return objective.scored(sums, meters) if sums.weight else None

    def sums(self, model: Model, examples: Examples, meters: Meters | None = None) -> Sums:
        """What scores follow from: sums over these examples; `meters` see the outputs, too."""
        objective, size = self.task.objective, evaluation_block(examples)

        def block(first: int) -> tuple[Sums, Tensor | None, Tensor]:
            inputs, targets = examples.between(first, first + size)
            with torch.no_grad():
                outputs = self.outputs(model, inputs)
                sums = objective.sums(outputs, targets)
            return sums, None if meters is None else outputs, targets

        total = Sums()
        for sums, answers, targets in self.across(block, range(0, len(examples), size)):
            total = total.plus(sums)
            if meters is not None and answers is not None:
                meters.update(answers, targets)
        return total

    def losses(self, models: Sequence[Model], mixes: Tensor, ids: Ids, t: int) -> Tested:
        """Test weighted sums of models, `mixes` [m, k], on the examples that clients train on in round t.

        Clients without examples are left out. Every engine computes the same bits: client by client, in
        blocks of one size. With `buffers = "local"` a client uses its own. Clients remember nothing of it.
        """
        candidates = [mixed(models, weights) for weights in mixes]
        ids = np.sort(ids)
        sizes = self.data.holdings.sizes(t, ids)
        ids, sizes = ids[sizes > 0], sizes[sizes > 0]
        own = self._local_buffers(ids)

        def test(client: int) -> list[float]:
            return self._mean_losses(candidates, client, t, own.get(client))

        found = np.array(list(self.across(test, ids.tolist())), dtype=np.float64)
        found = found.reshape(len(ids), len(candidates) + 1)
        counted = found[:, -1] > 0
        return Tested(ids[counted], found[counted, :-1].T, found[counted, -1])

    def _mean_losses(
        self, candidates: Sequence[Model], client: int, t: int, buffers: Buffers | None
    ) -> list[float]:
        """One client's mean loss at each model, over all that it holds in round t; then its weight."""
        places = self.data.everything(t, np.array([client])).places[0]
        sums, weight = [0.0] * len(candidates), 0.0
        size = evaluation_block(self.data.examples)
        for first in range(0, len(places), size):
            index = torch.from_numpy(places[first : first + size])
            inputs, targets = self.data.examples.take(index.to(self.data.examples.device))
            weights = self.task.weights(targets)
            weight += len(targets) if weights is None else float(weights.sum())
            for place, model in enumerate(candidates):
                used = model if buffers is None else model._replace(buffers=buffers)
                with torch.no_grad():
                    loss = self.task.losses(self.outputs(used, inputs), targets)
                sums[place] += float(loss.to(widest(loss)).sum())
        return [*(total / (weight or 1) for total in sums), weight]

    def _local_buffers(self, ids: Ids) -> dict[int, Buffers]:
        """The buffers of clients that keep their own, by client."""
        if self.buffers != "local":
            return {}
        found, kept = self.memory.kept(ids)
        return {
            client: tree_map(lambda leaf, at=at: leaf[at], kept.buffers)
            for at, client in enumerate(found.tolist())
        }

    def across(self, work: Callable[[In], Out], parts: Sequence[In]) -> Iterator[Out]:
        """`work` on every part, over the engine's threads; results in order, each when it is there."""
        self._threads = min(self.workers, len(parts))
        return (map if self._threads == 1 else self._pool.map)(work, parts)

    def close(self) -> None:
        self._pool.shutdown()


class InProcess(Engine):
    """An engine whose clients live in this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.task = self.task.rewritten(written_in_place)

    def run(
        self, broadcast: Broadcast, ids: Ids, walk: Walk, weights: Tensor | None = None
    ) -> Result:
        self._fetches.clear()
        self._threads = 1
        with (
            torch.no_grad(),
            explained(TRAINING, broadcast.t),
            lone_examples_explained(broadcast.t),
        ):
            chunk = self._chunk(broadcast, ids, walk)._replace(weights=weights)
            done = self.cohort(broadcast, chunk)
            check_memory(broadcast.algorithm, chunk.rows.mine, done.row.mine)
        kept = done.row._replace(buffers=done.buffers if self.buffers == "local" else {})
        # Threads fetch beside each other; the first entry is from before they began.
        gather = self._fetches[0] + sum(self._fetches[1:]) / self._threads
        adds = weights is not None
        return Result(ids, done.up, done.buffers, done.training, walk, adds, gather, rows=kept)

    def _chunk(self, broadcast: Broadcast, ids: Ids, walk: Walk) -> Chunk:
        """What each of these clients needs for its round: its memory and its examples."""
        rule, t = broadcast.rule, broadcast.t
        mine: Row = self.memory.take(ids, self.newcomer(broadcast))
        if not rule.carried:
            mine = mine._replace(rule=repeated(rule.start(broadcast.down.x), len(ids)))
        steps = walk.steps.cpu().numpy().astype(np.int64)
        with self.fetching():
            picks = self.data.picks(t, ids, steps, broadcast.purpose)
        if broadcast.algorithm.surveys == "never":
            return Chunk(ids, mine, picks, walk)
        stride = self.data.batching.per_pass(self.data.holdings.sizes(t, ids))
        return Chunk(ids, mine, picks, walk, self.data.everything(t, ids), stride)

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Note how long this takes: it goes into `Result.gather`."""
        began = perf_counter()
        yield
        self._fetches.append(perf_counter() - began)

    @abstractmethod
    def cohort(self, broadcast: Broadcast, chunk: Chunk) -> Report:
        """The stacked reports of a cohort, in the order of its ids: see `Collector`."""

    def batch(
        self, index: NDArray[np.int64], mask: NDArray[np.bool_], luck: Luck = NO_LUCK
    ) -> Batch:
        """The examples at `index`, ready for a step."""
        examples = self.data.examples
        device = examples.device
        with self.fetching():
            inputs, targets = examples.take(torch.from_numpy(index).to(device), luck)
        return Batch(inputs, targets, torch.from_numpy(mask).to(device, torch.get_default_dtype()))


def evaluation_block(examples: Examples) -> int:
    """How many examples a forward pass has: fewer where each has many outputs, as in models of text."""
    is_sequence = examples.targets.dim() > 1 and not examples.targets.is_floating_point()
    return SEQUENCE_BLOCK if examples.tensor is None or is_sequence else EVALUATION_BLOCK


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
    """Seed torch's generator for dropout, and leave it as it was afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
