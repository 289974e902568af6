"""What client u holds at round t, as positions in the training examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.core.rng import stream
from fedtide.core.types import Dataset, Group, Ids
from fedtide.data.partition import Partition


class Holdings(ABC):
    """A pure function of the round and the client, so that a device can evaluate it for itself."""

    @abstractmethod
    def sizes(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """How many examples each client holds."""

    @abstractmethod
    def examples(self, t: int, ids: Ids, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples at `places` [U, ...] of each client's store."""

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
        owners = np.repeat(np.arange(self.clients), np.diff(self.offsets))
        cells = np.bincount(
            owners * classes + targets[self.order], minlength=self.clients * classes
        )
        return cells.reshape(self.clients, classes)

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
