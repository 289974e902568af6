"""What a Ray actor does: it holds some clients and runs their rounds on an engine of its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.trees import rows, tree_map
from fedtide.core.types import Ids, Nothing, Tested, Walk
from fedtide.data.batches import ClientData
from fedtide.engines.base import NO_CLIENTS, InProcess, Traits
from fedtide.tasks.task import Task
from fedtide.training.memory import Memory
from fedtide.training.messages import Broadcast, Report
from fedtide.training.train import BufferPolicy

Array = NDArray[Any]


class TableSync(NamedTuple):
    """The memories that an actor uses in a round, and their changes since the round before."""

    table: int  # the number of the memory table
    alive: frozenset[int]  # the actor may delete all other tables
    is_new: bool  # the actor has no copy of this table: its rows are sent along
    counted: Ids = NO_CLIENTS  # clients of the table's last round here whose uploads were counted
    whole: bool = False  # return all rows of the table, too, as they are before this round


class StoredRows(NamedTuple):
    """What some clients remember, stacked, on its way between processes."""

    ids: Ids
    rows: Any  # stacked

    def some(self, ids: Ids) -> StoredRows:
        """The part that belongs to these clients."""
        places = np.flatnonzero(np.isin(self.ids, ids))
        if len(places) == len(self.ids):
            return self
        return StoredRows(self.ids[places], rows(self.rows, places))


class SharedArray(NamedTuple):
    """A tensor in Ray's object store."""

    dtype: str
    shape: tuple[int, ...]
    content: Array  # its bytes


SharedArrays = Mapping[str, SharedArray]


class Settings(NamedTuple):
    """The engine inside an actor."""

    kind: type[InProcess]
    task: Task
    traits: Traits
    buffers: BufferPolicy
    workers: int
    chunk: int
    device: str


class Actor:
    """Some clients in a process of their own."""

    def __init__(self, paths: Sequence[str]) -> None:
        sys.path.extend(path for path in paths if path not in sys.path)  # of a user's own classes
        torch.set_num_threads(1)
        self.engine: InProcess | None = None

    def settle(
        self,
        settings: Settings,
        data: ClientData,
        examples: Mapping[str, Any],
        held: tuple[SharedArrays, SharedArrays],
    ) -> None:
        """Receive the clients; their examples come as plain arrays.

        `held` are the model's frozen parameters and constants, in memory that all actors of a machine share.
        """
        if self.engine is not None:
            self.engine.close()
        self.device = settings.device
        tensors = unpacked(examples, self.device)
        data = replace(data, examples=replace(data.examples, **tensors))
        self.engine = settings.kind(
            settings.task.holding(*(shared_tensors(part, self.device) for part in held)),
            data,
            settings.traits,
            settings.buffers,
            settings.workers,
            settings.chunk,
        )
        self.engine.open()
        self.tables: dict[int, Memory] = {}
        self.waiting: dict[int, StoredRows] = {}  # rows of a table's last round, until counted

    def run(
        self,
        sync: TableSync,
        broadcast: Broadcast,
        ids: Ids,
        walk: Walk,
        weights: Array | None,
        known: Sequence[Ids],
        *backups: StoredRows,
    ) -> tuple[Report, StoredRows, StoredRows | None]:
        """One round of these clients: their reports, their new rows, and all rows before the round if asked.

        The rows of a new table come as `backups`, each valid for the clients in `known`.
        """
        memory = self._table(sync, known, backups)
        assert self.engine is not None
        self.engine.memory = memory
        here = broadcast._replace(
            down=unpacked(broadcast.down, self.device),
            buffers=unpacked(broadcast.buffers, self.device),
        )
        sums = None if weights is None else unpacked(weights, self.device)
        done = self.engine.run(here, ids, unpacked(walk, self.device), sums)
        self.waiting[sync.table] = StoredRows(ids, done.rows)
        report = Report(done.up, Nothing(), done.buffers, done.training, done.walk.steps)
        whole = _packed_table(memory) if sync.whole else None
        return packed(report), StoredRows(ids, packed(done.rows)), whole

    def losses(self, sent: tuple[Sequence[Any], Array], ids: Ids, t: int) -> Tested:
        """The losses of these clients at weighted sums of models: see `Engine.losses`."""
        assert self.engine is not None
        models = [unpacked(model, self.device) for model in sent[0]]
        return self.engine.losses(models, unpacked(sent[1], self.device), ids, t)

    def _table(
        self, sync: TableSync, known: Sequence[Ids], backups: Sequence[StoredRows]
    ) -> Memory:
        """The memories of a round: as they were sent, or with what counted of the last round."""
        self.tables = {n: memory for n, memory in self.tables.items() if n in sync.alive}
        learnt = self.waiting.pop(sync.table, None)
        self.waiting = {n: kept for n, kept in self.waiting.items() if n in sync.alive}
        if sync.is_new:
            memory = self.tables[sync.table] = Memory()
            for backup, ids in zip(backups, known, strict=True):
                part = backup.some(ids)
                memory.put(part.ids, unpacked(part.rows, self.device))
        elif learnt is not None:
            part = learnt.some(sync.counted)
            self.tables[sync.table].put(part.ids, part.rows)
        return self.tables[sync.table]


def shared_arrays(tensors: Mapping[str, Tensor]) -> SharedArrays:
    """Tensors of any dtype as bytes, which Ray keeps once on every machine."""
    return {
        name: SharedArray(
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy(),
        )
        for name, tensor in tensors.items()
    }


def shared_tensors(arrays: SharedArrays, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors again, without a copy on a CPU: nothing writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        flat = {name: torch.from_numpy(array.content) for name, array in arrays.items()}
    return {
        name: flat[name].view(getattr(torch, array.dtype)).view(array.shape).to(device)
        for name, array in arrays.items()
    }


def _packed_table(memory: Memory) -> StoredRows:
    ids, kept = memory.kept()
    return StoredRows(ids, packed(kept))


def packed(tree: Any) -> Any:
    """The tree with numpy arrays in place of tensors: Ray moves arrays without copying them."""
    return tree_map(lambda leaf: leaf.cpu().numpy(), tree)


def unpacked(tree: Any, device: str = "cpu") -> Any:
    """The tree with tensors again, copied, because arrays from Ray are read-only."""
    return tree_map(lambda leaf: torch.tensor(leaf, device=device), tree)
