"""What client u holds at round t, as positions in the training examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.core.rng import stream, uniforms
from fedtide.core.types import Dataset, Group, Ids
from fedtide.data.partition import Partition


class Holdings(ABC):
    """A pure function of the round and the client, so that a device can evaluate it for itself."""

    here: ClassVar[bool] = True  # are the examples on this machine?

    @abstractmethod
    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples each client holds."""

    @abstractmethod
    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples at `places` [U, ...] of each client's store."""

    def share(self, ids: Ids) -> tuple[NDArray[np.int64] | None, Holdings]:
        """The examples that these clients ever hold, and their holdings counted among those alone.

        None stands for all examples, where it is not known better.
        """
        return None, self

    @property
    @abstractmethod
    def clients(self) -> int:
        """How many clients ever exist."""

    @abstractmethod
    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """How many examples of each label every client holds at the start: [clients, classes]."""

    @abstractmethod
    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """Every example that one of these clients holds, at least once."""

    def ever(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """Every example that one of these clients holds at round t or may come to hold later."""
        return self.held(t, ids)


@dataclass(frozen=True, eq=False)
class Static(Holdings):
    """Every client keeps what it was given; all stores lie in one array, one after the other."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]  # client u holds order[offsets[u] : offsets[u + 1]]

    @classmethod
    def of_owners(cls, owners: NDArray[np.int64], clients: int) -> Static:
        """Stores from the owner of each example; -1 means nobody."""
        counts = np.bincount(owners[owners >= 0], minlength=clients)
        order = np.argsort(owners, kind="stable")[len(owners) - counts.sum() :]
        return cls(order, np.concatenate([[0], counts.cumsum()]))

    @classmethod
    def joined(cls, parts: Sequence[Static]) -> Static:
        """Groups of clients numbered one after the other."""
        starts = np.cumsum([0, *(len(part.order) for part in parts)])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return cls(np.concatenate([p.order for p in parts]), np.concatenate([[0], *offsets]))

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        return counts(np.arange(self.clients), np.diff(self.offsets), targets[self.order], classes)

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return self.offsets[ids + 1] - self.offsets[ids]

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        begin = self.offsets[ids].reshape(-1, *(1,) * (places.ndim - 1))
        taken: NDArray[np.int64] = self.order[begin + places]
        return taken

    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        if len(ids) == self.clients:
            return self.order
        marks = np.zeros(len(self.order) + 1, dtype=np.int64)
        np.add.at(marks, self.offsets[ids], 1)
        np.add.at(marks, self.offsets[ids + 1], -1)
        return self.order[marks[:-1].cumsum() > 0]

    def share(self, ids: Ids) -> tuple[NDArray[np.int64], Static]:
        counts = np.zeros(self.clients, dtype=np.int64)
        counts[ids] = self.sizes(0, ids)
        index, order = np.unique(self.held(0, ids), return_inverse=True)
        return index, Static(order, np.concatenate([[0], counts.cumsum()]))


class Pace(NamedTuple):
    """How a client's store fills, [clients] each."""

    capacity: NDArray[np.int64]  # D_u
    first: NDArray[np.int64]  # examples at the start
    slots: NDArray[np.int64]  # E_u: chances of an arrival between two rounds
    chance: NDArray[np.float64]  # p_u: of an arrival in a slot

    def arrivals(self, t: int, ids: Ids, seed: int) -> NDArray[np.int64]:
        """How many examples arrive at each client right before round t >= 1."""
        count = int(self.slots[ids].max(initial=0))
        draws = uniforms(seed, "arrival", t, ids=ids, count=count)
        comes = (draws < self.chance[ids, None]) & (np.arange(count) < self.slots[ids, None])
        arrived: NDArray[np.int64] = comes.sum(1)
        return arrived


@dataclass(eq=False)
class Fifo(Holdings):
    """Examples arrive between rounds, in the order of the client's stream; a full store drops its oldest.

    Arrivals of a round have an address of their own, so what a client holds at round t is a sum over the
    rounds before. The sum of every client asked about is kept and walked forth and back from there: a run
    pays for its cohorts, and a resumed run walks once through the rounds it did not make.
    """

    stream: Static  # everything that will ever arrive, first come first
    pace: Pace
    seed: int

    def __post_init__(self) -> None:
        self._round = np.zeros(self.clients, dtype=np.int64)  # up to which arrivals are summed
        self._arrived = np.zeros(self.clients, dtype=np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the sums behind: another process computes its own, and arrays from Ray are read-only."""
        return type(self), (self.stream, self.pace, self.seed)

    @property
    def clients(self) -> int:
        return self.stream.clients

    def arrived(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples have arrived at each client since the start."""
        for s in range(int(self._round[ids].min(initial=t)) + 1, t + 1):
            behind = np.unique(ids[self._round[ids] < s])
            self._arrived[behind] += self.pace.arrivals(s, behind, self.seed)
            self._round[behind] = s
        for s in range(int(self._round[ids].max(initial=t)), t, -1):
            ahead = np.unique(ids[self._round[ids] >= s])
            self._arrived[ahead] -= self.pace.arrivals(s, ahead, self.seed)
            self._round[ahead] = s - 1
        return self._arrived[ids]

    def span(self, t: int, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The stretch of its stream that each client holds: from the first, up to the second."""
        end = np.minimum(self.pace.first[ids] + self.arrived(t, ids), self.stream.sizes(t, ids))
        return np.maximum(end - self.pace.capacity[ids], 0), end

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        begin, end = self.span(t, ids)
        return end - begin

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        begin = self.span(t, ids)[0].reshape(-1, *(1,) * (places.ndim - 1))
        # A client without examples is asked for fillings only.
        last = np.maximum(self.stream.sizes(t, ids) - 1, 0).reshape(begin.shape)
        return self.stream.examples(t, ids, np.minimum(begin + places, last))

    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        begin, end = self.span(t, ids)
        return self._stretch(ids, begin, end)

    def share(self, ids: Ids) -> tuple[NDArray[np.int64], Fifo]:
        index, stream = self.stream.share(ids)
        return index, replace(self, stream=stream)

    def ever(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return self._stretch(ids, self.span(t, ids)[0], self.stream.sizes(t, ids))

    def _stretch(
        self, ids: Ids, begin: NDArray[np.int64], end: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The examples of these stretches of the clients' streams, one client after the other."""
        places = self.stream.offsets[ids]
        ends = zip((places + begin).tolist(), (places + end).tolist(), strict=True)
        return np.concatenate(
            [np.empty(0, dtype=np.int64), *(self.stream.order[b:e] for b, e in ends)]
        )

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        everybody = np.arange(self.clients)
        return counts(
            everybody, self.sizes(0, everybody), targets[self.held(0, everybody)], classes
        )


@dataclass(frozen=True, eq=False)
class Pooled(Holdings):
    """One client holds what all of these hold: the Genie of centralised training."""

    of: Holdings

    @property
    def clients(self) -> int:
        return 1

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        whole = self.of.sizes(t, np.arange(self.of.clients)).sum()
        return np.full(len(ids), whole, dtype=np.int64)

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        taken: NDArray[np.int64] = self.held(t, ids)[places]
        return taken

    def held(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return self.of.held(t, np.arange(self.of.clients))

    def ever(self, t: int, ids: Ids) -> NDArray[np.int64]:
        return self.of.ever(t, np.arange(self.of.clients))

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        return np.asarray(self.of.labels(targets, classes).sum(0, keepdims=True))


def counts(
    owners: Ids, sizes: NDArray[np.int64], labels: NDArray[np.int64], classes: int
) -> NDArray[np.int64]:
    """How many examples of each label these clients hold, whose examples lie one after the other."""
    cells = np.repeat(owners, sizes) * classes + labels
    return np.bincount(cells, minlength=len(owners) * classes).reshape(len(owners), classes)


def distribute(
    dataset: Dataset, partition: Partition, groups: Sequence[Group], seed: int
) -> Static:
    """Split the training examples of each group's labels over that group's clients.

    Groups that share a label share its examples: both get all of them.
    """
    targets = dataset.train.targets.numpy()
    parts = []
    for number, group in enumerate(groups):
        mine = np.arange(len(targets))
        if group.labels is not None:
            mine = np.flatnonzero(np.isin(targets, group.labels))
        if not len(mine):
            raise DataError(
                f"population: the labels {group.labels} of group {number} must occur in the data. "
                f"Got none of them in {dataset.name!r}. Choose a smaller overlap or other data."
            )
        keys = None if dataset.keys is None else dataset.keys[mine]
        rng = stream(seed, "partition", number)
        owners = partition.owners(targets[mine], group.clients, rng, keys)
        part = Static.of_owners(owners, group.clients)
        parts.append(Static(mine[part.order], part.offsets))
    return Static.joined(parts)
