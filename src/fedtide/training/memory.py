"""What clients remember between rounds: rows only for clients that took part."""

import weakref
from mmap import mmap
from tempfile import TemporaryFile
from typing import IO, Any, Self

import numpy as np
import torch
from torch import Tensor

from fedtide.core.disk import allocate, room_for
from fedtide.core.trees import leaves, rows, tree_map
from fedtide.core.types import Ids, Nothing

MADV_DONTNEED = 4  # of madvise(2); not a name that every system's mmap module has


class Memory:
    """A growing table with one row per client seen; it alone maps client ids to rows."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._table: Any = None  # a tree of [capacity, ...]
        self._changed: set[int] = set()  # clients whose rows are newer than the last checkpoint

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, client: int) -> bool:
        return client in self._slots

    def take(self, ids: Ids, fresh: Any) -> Any:
        """The rows of these clients, stacked; a client seen for the first time gets `fresh`."""
        slots = [self._slots.get(client, -1) for client in ids.tolist()]
        if self._table is None or max(slots) < 0:
            return tree_map(lambda leaf: leaf.expand(len(ids), *leaf.shape), fresh)
        index = torch.tensor(slots)
        unseen = index < 0
        taken = rows(self._table, index.clamp(min=0))
        return tree_map(lambda new, old: _filled(old, new, unseen), fresh, taken)

    def put(self, ids: Ids, stacked: Any) -> None:
        """Store these rows."""
        if not len(ids) or not any(True for _ in leaves(stacked)):
            return
        for client in ids.tolist():
            self._slots.setdefault(client, len(self._slots))
        self._changed.update(ids.tolist())
        self._reserve(len(self._slots), stacked)
        index = torch.tensor([self._slots[client] for client in ids.tolist()])
        tree_map(lambda table, new: _copied(table, index, new), self._table, stacked)

    def kept(self, ids: Ids | None = None) -> tuple[Ids, Any]:
        """The rows of these clients, or of all, as far as there are any."""
        known = self._slots if ids is None else filter(self._slots.__contains__, ids.tolist())
        found = np.fromiter(known, dtype=np.int64)
        if self._table is None:
            return found, Nothing()
        if ids is None:
            return found, rows(self._table, slice(len(found)))  # not copied
        slots = [self._slots[client] for client in found.tolist()]
        return found, rows(self._table, torch.tensor(slots, dtype=torch.long))

    def anew(self) -> Self:
        """Another table of this kind, empty."""
        return type(self)()

    def clear(self) -> None:
        """Delete all rows."""
        self._slots, self._table, self._changed = {}, None, set()

    @property
    def clients(self) -> Ids:
        """The clients that have a row, in the order of their first participation."""
        return np.fromiter(self._slots, np.int64, len(self._slots))

    @property
    def changed(self) -> Ids:
        """The clients whose rows changed since the last `settle`."""
        return np.fromiter(sorted(self._changed), np.int64, len(self._changed))

    def settle(self) -> None:
        """Note that all rows are in a checkpoint."""
        self._changed.clear()

    def _reserve(self, count: int, like: Any) -> None:
        if self._table is None:
            self._table = tree_map(lambda leaf: leaf.new_empty(count, *leaf.shape[1:]), like)
        capacity = len(next(leaves(self._table)))
        if count > capacity:
            extra = max(count - capacity, capacity // 2)
            self._table = tree_map(
                lambda leaf: torch.cat([leaf, leaf.new_empty(extra, *leaf.shape[1:])]), self._table
            )


class MemoryOnDisk(Memory):
    """The same table in files: only the rows of the present cohort are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._maps: list[mmap] = []
        self._files: list[IO[bytes]] = []
        self._allocated = 0  # rows that have their space on the disk
        weakref.finalize(self, _close, self._files)

    def take(self, ids: Ids, fresh: Any) -> Any:
        taken = super().take(ids, fresh)
        self._release()
        return taken

    def put(self, ids: Ids, stacked: Any) -> None:
        super().put(ids, stacked)
        self._release()

    def clear(self) -> None:
        super().clear()
        self._maps, self._allocated = [], 0
        _close(self._files)

    def _reserve(self, count: int, like: Any) -> None:
        done, self._allocated = self._allocated, count
        widths = [leaf[:1].nbytes for leaf in leaves(like)]
        needed = (count - done) * sum(widths)
        with room_for(needed, "engine.memory = 'disk'", "engine.memory = 'ram'"):
            if self._table is None:
                self._files += (TemporaryFile(buffering=0) for _ in widths)  # noqa: SIM115
            if self._table is None or count > len(next(leaves(self._table))):
                capacity, files, self._maps = count + count // 2, iter(self._files), []
                self._table = tree_map(lambda leaf: self._mapped(next(files), capacity, leaf), like)
            for file, width in zip(self._files, widths, strict=True):
                allocate(file, done * width, (count - done) * width)

    def _mapped(self, file: IO[bytes], capacity: int, like: Tensor) -> Tensor:
        """A file as a tensor; the file keeps its rows, and rows that are not in use take no space."""
        file.truncate(capacity * max(like[:1].nbytes, 1))
        self._maps.append(mmap(file.fileno(), 0))
        flat = torch.frombuffer(self._maps[-1], dtype=like.dtype)
        return flat[: capacity * like[:1].numel()].view(capacity, *like.shape[1:])

    def _release(self) -> None:
        """Let the system write rows to disk and take their memory back."""
        for each in self._maps:
            if hasattr(each, "madvise"):  # not so on Windows
                each.madvise(MADV_DONTNEED)


def _close(files: list[IO[bytes]]) -> None:
    """Close files, which makes temporary ones disappear."""
    while files:
        files.pop().close()


def _copied(table: Tensor, index: Tensor, new: Tensor) -> Tensor:
    """The table with new rows, which may come from another device."""
    return table.index_copy_(0, index.to(table.device), new.to(table.device))


def _filled(taken: Tensor, fresh: Tensor, unseen: Tensor) -> Tensor:
    """Rows of the table, where they are needed, with the fresh row where there is none yet."""
    taken = taken.to(fresh.device)
    taken[unseen.to(taken.device)] = fresh.to(taken.dtype)
    return taken
