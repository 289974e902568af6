"""Where the memories of clients that live in actors are kept a second time."""

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
from fedtide.engines.ray.actor import Kept, packed, unpacked
from fedtide.training.memory import Memory

STALE = (
    3  # an actor may have so many times more copies than clients before one of all replaces them
)


class Note(NamedTuple):
    """Where a copy lies."""

    ids: Ids  # the clients whose memories are those of the copy
    copy: Any  # a reference to a `Kept` in Ray's object store, perhaps of more clients


class Copies(Memory):
    """Memories stay with the actors; the object store has a copy of each, and this knows where.

    An actor makes the copy at the end of a round, and it survives the actor's process. None of them pass
    through this process, so that its own memory does not grow with the clients.
    """

    def __init__(
        self, owners: NDArray[np.int64], numbers: count[int], alive: WeakSet[Copies]
    ) -> None:
        self._owners, self._numbers, self._alive = owners, numbers, alive
        self.clear()
        alive.add(self)

    def __len__(self) -> int:
        return int(self._seen.sum())

    def __contains__(self, client: int) -> bool:
        return bool(self._seen[client])

    def anew(self) -> Copies:
        return Copies(self._owners, self._numbers, self._alive)

    def clear(self) -> None:
        self.number = next(self._numbers)  # a table that no actor knows yet
        self._seen = np.zeros(len(self._owners), dtype=bool)
        self._news = np.zeros(len(self._owners), dtype=bool)  # since the last checkpoint
        self._clients: defaultdict[int, int] = defaultdict(int)  # of an actor, seen
        self._notes: defaultdict[int, list[Note]] = defaultdict(list)  # of an actor, oldest first

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
        """The tables that may still be asked for."""
        return frozenset(copies.number for copies in self._alive)

    def of(self, actor: int) -> list[Note]:
        """Where the copies of an actor's memories lie, oldest first."""
        return self._notes[actor]

    def is_crowded(self, actor: int) -> bool:
        """Are most copies of an actor's memories out of date?"""
        return sum(len(note.ids) for note in self._notes[actor]) > STALE * self._clients[actor]

    def note(self, actor: int, ids: Ids, copy: Any, whole: Any = None) -> None:
        """These clients of an actor have new memories, in `copy`; `whole` has those of all before."""
        if whole is not None:
            everybody = np.flatnonzero(self._seen & (self._owners == actor))
            self._notes[actor] = [Note(everybody, whole)]
        if not len(ids):
            return
        self._clients[actor] += int(np.count_nonzero(~self._seen[ids]))
        self._seen[ids] = self._news[ids] = True
        if len(ids) == self._clients[actor]:
            self._notes[actor] = []
        self._notes[actor].append(Note(ids, copy))

    def take(self, ids: Ids, fresh: Any) -> Any:
        return self._fetched(ids).take(ids, fresh)

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        return self._fetched(ids).kept(ids)

    def put(self, ids: Ids, stacked: Any) -> None:
        self.number = next(self._numbers)  # what the actors know is out of date
        for actor in np.unique(self._owners[ids]).tolist():
            mine = np.flatnonzero(self._owners[ids] == actor)
            self.note(
                actor,
                ids[mine],
                ray.put(Kept(ids[mine], packed(rows(stacked, torch.from_numpy(mine))))),
            )

    def _fetched(self, ids: Ids | None) -> Memory:
        """What these clients remember, or all, in this process; no more copies are fetched than needed."""
        found = []
        for actor in sorted(self._notes) if ids is None else np.unique(self._owners[ids]).tolist():
            wanted = np.flatnonzero(self._seen & (self._owners == actor)) if ids is None else ids
            for note in reversed(self.of(actor)):  # the newest copy of each
                some = np.intersect1d(note.ids, wanted)
                if len(some):
                    found.append((note.copy, some))
                    wanted = np.setdiff1d(wanted, some)
        memory = Memory()
        for copy, (_, some) in zip(ray.get([ref for ref, _ in found]), found, strict=True):
            part = copy.some(some)
            memory.put(part.ids, unpacked(part.rows))
        return memory
