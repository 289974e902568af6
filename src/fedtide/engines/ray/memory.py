"""Client memories of the Ray engine: they live in the actors, with a backup in Ray's object store."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from fedtide.core.trees import rows
from fedtide.core.types import Ids
from fedtide.engines.ray.actor import StoredRows, packed, unpacked
from fedtide.training.memory import Memory

# An actor may have this many times more rows in backups than clients; then one backup of all replaces them.
STALE = 3


class Backup(NamedTuple):
    """Rows in Ray's object store."""

    ids: Ids  # the clients whose newest rows are in this backup
    rows: Any  # a reference to a `StoredRows` in Ray's object store, perhaps of more clients


class RemoteMemory(Memory):
    """Rows stay with the actors; the object store has a backup of each, and this class knows where.

    An actor makes the backup at the end of a round; it survives the actor's process. No row passes through
    the driver's process, so its memory does not grow with the clients.
    """

    def __init__(
        self, owners: NDArray[np.int64], numbers: count[int], alive: WeakSet[RemoteMemory]
    ) -> None:
        self._owners, self._numbers, self._alive = owners, numbers, alive
        self.clear()
        alive.add(self)

    def __len__(self) -> int:
        return int(self._seen.sum())

    def __contains__(self, client: int) -> bool:
        return bool(self._seen[client])

    def anew(self) -> RemoteMemory:
        return RemoteMemory(self._owners, self._numbers, self._alive)

    def clear(self) -> None:
        self.number = next(self._numbers)  # a table that no actor has yet
        self._seen = np.zeros(len(self._owners), dtype=bool)
        self._news = np.zeros(len(self._owners), dtype=bool)  # since the last checkpoint
        self._clients: defaultdict[int, int] = defaultdict(int)  # of an actor, seen
        self._backups: defaultdict[int, list[Backup]] = defaultdict(
            list
        )  # of an actor, oldest first

    @property
    def clients(self) -> Ids:
        return np.flatnonzero(self._seen)

    @property
    def changed(self) -> Ids:
        return np.flatnonzero(self._news)

    def settle(self) -> None:
        self._news[:] = False

    @property
    def alive(self) -> frozenset[int]:
        """The numbers of tables that are still in use."""
        return frozenset(copies.number for copies in self._alive)

    def of(self, actor: int) -> list[Backup]:
        """The backups of an actor's rows, oldest first."""
        return self._backups[actor]

    def is_stale(self, actor: int) -> bool:
        """Are most rows in the backups of an actor out of date?"""
        return (
            sum(len(backup.ids) for backup in self._backups[actor]) > STALE * self._clients[actor]
        )

    def note(self, actor: int, ids: Ids, stored: Any, whole: Any = None) -> None:
        """Note that clients of an actor have new rows, in `stored`; `whole` has the rows of all before."""
        if whole is not None:
            seen = np.flatnonzero(self._seen & (self._owners == actor))
            self._backups[actor] = [Backup(seen, whole)]
        if not len(ids):
            return
        self._clients[actor] += int(np.count_nonzero(~self._seen[ids]))
        self._seen[ids] = self._news[ids] = True
        if len(ids) == self._clients[actor]:
            self._backups[actor] = []
        self._backups[actor].append(Backup(ids, stored))

    def take(self, ids: Ids, fresh: Any) -> Any:
        return self._fetched(ids).take(ids, fresh)

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        return self._fetched(ids).kept(ids)

    def put(self, ids: Ids, stacked: Any) -> None:
        self.number = next(self._numbers)  # the rows that actors hold are out of date
        for actor in np.unique(self._owners[ids]).tolist():
            mine = np.flatnonzero(self._owners[ids] == actor)
            self.note(
                actor,
                ids[mine],
                ray.put(StoredRows(ids[mine], packed(rows(stacked, torch.from_numpy(mine))))),
            )

    def _fetched(self, ids: Ids | None) -> Memory:
        """The rows of these clients, or of all, in this process; only backups that are needed are fetched."""
        found = []
        for actor in (
            sorted(self._backups) if ids is None else np.unique(self._owners[ids]).tolist()
        ):
            wanted = np.flatnonzero(self._seen & (self._owners == actor)) if ids is None else ids
            for backup in reversed(self.of(actor)):  # the newest backup of each client
                some = np.intersect1d(backup.ids, wanted)
                if len(some):
                    found.append((backup.rows, some))
                    wanted = np.setdiff1d(wanted, some)
        memory = Memory()
        for copy, (_, some) in zip(ray.get([ref for ref, _ in found]), found, strict=True):
            part = copy.some(some)
            memory.put(part.ids, unpacked(part.rows))
        return memory
