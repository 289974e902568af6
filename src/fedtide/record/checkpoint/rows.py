"""Client memories in checkpoints: each one writes the rows that changed since the one before."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.trees import size_bytes
from fedtide.core.types import Ids
from fedtide.record.checkpoint.codec import Kinds, pack, unpack
from fedtide.record.checkpoint.segments import Draft, Segments


class Memories(Protocol):
    """The part of `fedtide.training.memory.Memory` that checkpoints use."""

    @property
    def clients(self) -> Ids:
        """The ids of all clients with a memory."""

    @property
    def changed(self) -> Ids:
        """The ids of clients whose rows changed since the last `settle`."""

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        """The ids among these, or among all, that have a row, and their rows stacked."""

    def put(self, ids: Ids, stacked: Any) -> None:
        """Set the rows of these clients."""

    def clear(self) -> None:
        """Remove all rows."""

    def settle(self) -> None:
        """Note that all rows are on disk: none has changed since."""


class RowTable(NamedTuple):
    """For each client, the segment and the place in it that hold its row."""

    client: NDArray[np.int64]  # [n], increasing
    segment: NDArray[np.int64]  # [n]
    row: NDArray[np.int64]  # [n]
    shape: Any  # the structure of a row, packed as JSON
    width: int  # bytes of a row

    def updated(self, draft: Draft, memory: Memories, kinds: Kinds, anew: bool) -> RowTable:
        """Add the rows that changed, or all of them anew, to the draft; returns the new table."""
        shape, width, number = self.shape, self.width, count()
        changed, stacked = memory.kept(None if anew else memory.changed)
        if len(changed):
            shape = pack(stacked, kinds, lambda leaf: draft.add(f"row.{next(number)}", leaf))
            width = size_bytes(stacked) // len(changed)
        same = np.setdiff1d(np.intersect1d(memory.clients, self.client), changed)
        at = np.searchsorted(self.client, same)
        draft.refer(set(self.segment[at].tolist()), len(same) * width)
        client = np.concatenate([same, changed])
        segment = np.concatenate([self.segment[at], np.full(len(changed), draft.number)])
        row = np.concatenate([self.row[at], np.arange(len(changed))])
        order = np.argsort(client)
        return RowTable(client[order], segment[order], row[order], shape, width)

    def restore(
        self, segments: Segments, memory: Memories, kinds: Kinds, device: torch.device
    ) -> None:
        """Read every row from its segment into `memory`."""
        for number in np.unique(self.segment).tolist():
            here = self.segment == number
            index = torch.from_numpy(self.row[here])

            def taken(name: str, number: int = number, index: torch.Tensor = index) -> Any:
                return segments.read(number, name)[index].to(device)

            memory.put(self.client[here], unpack(self.shape, kinds, taken))
        memory.settle()


_EMPTY = np.empty(0, dtype=np.int64)
NO_ROWS = RowTable(_EMPTY, _EMPTY, _EMPTY, None, 0)
