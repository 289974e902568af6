"""Which training examples client u holds in round t."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError, require
from fedtide.core.rng import stream, uniforms
from fedtide.core.types import Dataset, Group, Ids
from fedtide.data.partition import Partition

ROUNDING = 1e-9  # 0.29 of 100 examples are 29


class Holdings(ABC):
    """The examples that each client holds in each round, as positions in the training examples.

    A pure function of round and client, so that a real client can evaluate it on its own machine.
    """

    here: ClassVar[bool] = True  # False: the examples are on the clients' machines

    @abstractmethod
    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples each client holds."""

    @abstractmethod
    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples at the positions `places` [U, ...] of each client's store."""

    def share(self, ids: Ids) -> tuple[NDArray[np.int64] | None, Holdings]:
        """The examples that these clients ever hold, and their holdings as positions among only those.

        None instead of the examples stands for all of them.
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
    """Every client always holds the same examples; one array has the stores of all clients in turn."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]  # client u holds order[offsets[u] : offsets[u + 1]]

    @classmethod
    def of_owners(cls, owners: NDArray[np.int64], clients: int) -> Static:
        """Stores from the owner of each example; an example with owner -1 is in none."""
        counts = np.bincount(owners[owners >= 0], minlength=clients)
        order = np.argsort(owners, kind="stable")[len(owners) - counts.sum() :]
        return cls(order, np.concatenate([[0], counts.cumsum()]))

    @classmethod
    def joined(cls, parts: Sequence[Static]) -> Static:
        """Join groups of clients; ids of the second group follow those of the first, and so on."""
        starts = np.cumsum([0, *(len(part.order) for part in parts)])
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return cls(np.concatenate([p.order for p in parts]), np.concatenate([[0], *offsets]))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The client of each place in `order`."""
        return np.repeat(np.arange(self.clients), np.diff(self.offsets))

    def without(self, share: float, turns: NDArray[Any]) -> tuple[Static, NDArray[np.int64]]:
        """These stores without a share of each client's examples, rounded down; and those examples.

        A client gives away those that come first in order of `turns`, a number for each place in `order`.
        What one client gives away leaves the stores of all clients.
        """
        sizes, owners = np.diff(self.offsets), self.owners
        order = np.lexsort((turns, owners))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - self.offsets[owners]
        given = np.floor(share * sizes + ROUNDING).astype(np.int64)
        taken = np.unique(self.order[rank < given[owners]])
        stays = ~np.isin(self.order, taken)
        left = np.bincount(owners[stays], minlength=self.clients)
        return Static(self.order[stays], np.concatenate([[0], left.cumsum()])), taken

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
    """How each client's store fills; each field is [clients]."""

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

    The arrivals of each round have a random address of their own, so the number that has arrived by round t
    is a sum over rounds. The latest sum of each client is kept and moved to the round that is asked for: a
    run computes it for its cohorts only, and a resumed run once for the rounds it did not compute itself.
    """

    stream: Static  # all examples that will ever arrive at each client, in this order
    pace: Pace
    seed: int

    def __post_init__(self) -> None:
        self._round = np.zeros(self.clients, dtype=np.int64)  # the round that each sum stands for
        self._arrived = np.zeros(self.clients, dtype=np.int64)  # the sums

    def __reduce__(self) -> tuple[Any, ...]:
        """Do not send the sums: another process computes its own, and arrays from Ray are read-only."""
        return type(self), (self.stream, self.pace, self.seed)

    @property
    def clients(self) -> int:
        return self.stream.clients

    def arrived(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples have arrived at each client by round t."""
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
        """The part of its stream that each client holds: from the first position to before the second."""
        end = np.minimum(self.pace.first[ids] + self.arrived(t, ids), self.stream.sizes(t, ids))
        return np.maximum(end - self.pace.capacity[ids], 0), end

    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        begin, end = self.span(t, ids)
        return end - begin

    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        begin = self.span(t, ids)[0].reshape(-1, *(1,) * (places.ndim - 1))
        # A client without examples is asked for padding only, which must lie within its stream.
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
        """The examples from `begin` to `end` of each client's stream, one client after the other."""
        places = self.stream.offsets[ids]
        ends = zip((places + begin).tolist(), (places + end).tolist(), strict=True)
        return np.concatenate(
            [np.empty(0, dtype=np.int64), *(self.stream.order[b:e] for b, e in ends)]
        )

    def labels(self, targets: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        ids = np.arange(self.clients)
        return counts(ids, self.sizes(0, ids), targets[self.held(0, ids)], classes)


@dataclass(frozen=True, eq=False)
class Pooled(Holdings):
    """One client holds the examples of all clients of `of`: the Genie of centralised training."""

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
    """[clients, classes]: how many examples of each label the owners hold.

    `labels` has the labels of the first owner's examples, then those of the second, and so on.
    """
    cells = np.repeat(owners, sizes) * classes + labels
    return np.bincount(cells, minlength=len(owners) * classes).reshape(len(owners), classes)


def distribute(
    dataset: Dataset,
    partition: Partition,
    groups: Sequence[Group],
    seed: int,
    without: NDArray[np.int64] | None = None,
) -> Static:
    """Split the training examples of each group's labels over that group's clients.

    If two groups have a label in common, both split all of its examples. The examples `without` are left out.
    """
    require(
        dataset.classes > 0 or not partition.needs_labels,
        "data.partition",
        f"one that needs no labels, as targets of {dataset.name!r} are not labels",
        type(partition).__name__,
        "Use 'iid', 'natural' where each example has an owner, or 'quantiles', 'clusters' or 'time'.",
    )
    targets = dataset.labels
    groups_of = partition.labels(dataset, stream(seed, "partition labels"))
    free = np.ones(len(targets), dtype=bool)
    if without is not None:
        free[without] = False
    parts = []
    for number, group in enumerate(groups):
        fits = free if group.labels is None else free & np.isin(targets, group.labels)
        mine = np.flatnonzero(fits)
        if not len(mine):
            raise DataError(
                f"population: the labels {group.labels} of group {number} must occur in the data. "
                f"Got none of them in {dataset.name!r}. Choose a smaller overlap or other data."
            )
        keys = None if dataset.keys is None else dataset.keys[mine]
        rng = stream(seed, "partition", number)
        owners = partition.owners(groups_of[mine], group.clients, rng, keys)
        part = Static.of_owners(owners, group.clients)
        parts.append(Static(mine[part.order], part.offsets))
    return Static.joined(parts)
