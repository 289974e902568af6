"""What clients remember, in segments: a checkpoint writes the rows that changed since the last one."""

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
    """What clients remember, as `fedtide.training.memory.Memory` has it."""

    @property
    def clients(self) -> Ids:
        """Everybody who remembers something."""

    @property
    def changed(self) -> Ids:
        """Those whose rows changed since the last `settle`."""

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        """The rows of these clients, or of all, stacked, as far as there are any."""

    def put(self, ids: Ids, stacked: Any) -> None:
        """Keep these rows."""

    def clear(self) -> None:
        """Forget everybody."""

    def settle(self) -> None:
        """All rows are safe on disk."""


class Rows(NamedTuple):
    """Where the row of each client lies."""

    client: NDArray[np.int64]  # [n], increasing
    segment: NDArray[np.int64]  # [n]
    row: NDArray[np.int64]  # [n]
    shape: Any  # of a row, packed
    width: int  # bytes of a row

    def kept(self, draft: Draft, memory: Memories, kinds: Kinds, anew: bool) -> Rows:
        """Where they lie once the draft is written, which takes in those that changed, or all anew."""
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
        return Rows(client[order], segment[order], row[order], shape, width)

    def bring_back(
        self, segments: Segments, memory: Memories, kinds: Kinds, device: torch.device
    ) -> None:
        """Give every client its row."""
        for number in np.unique(self.segment).tolist():
            here = self.segment == number
            index = torch.from_numpy(self.row[here])

            def taken(name: str, number: int = number, index: torch.Tensor = index) -> Any:
                return segments.read(number, name)[index].to(device)

            memory.put(self.client[here], unpack(self.shape, kinds, taken))
        memory.settle()


_NOBODY = np.empty(0, dtype=np.int64)
NO_ROWS = Rows(_NOBODY, _NOBODY, _NOBODY, None, 0)
