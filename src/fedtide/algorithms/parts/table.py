"""The last contribution of every client, kept at the server."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtide.core.trees import rows, tree_map


class Table(NamedTuple):
    """One row per client seen, in the order of their ids, so that the order of arrival does not matter.

    The row of a client that has left stays: it counts again if the client returns.
    """

    ids: Tensor  # [n]
    every: Any  # their last uploads, stacked: [n, ...]
    here: Tensor  # [n]: does this client exist now?

    @property
    def rows(self) -> Any:
        """The last uploads of the clients that exist now."""
        return self.every if bool(self.here.all()) else rows(self.every, self.here)

    def with_rows(self, ids: Tensor, new: Any) -> Table:
        """The table after these uploads: they replace earlier ones of the same clients."""
        ids_ = torch.unique(torch.cat([self.ids, ids]))  # sorted
        old, now = torch.searchsorted(ids_, self.ids), torch.searchsorted(ids_, ids)

        def merge(before: Tensor, after: Tensor) -> Tensor:
            whole = after.new_empty(len(ids_), *after.shape[1:])
            return whole.index_copy_(0, old, before).index_copy_(0, now, after)

        here = merge(self.here, torch.ones_like(ids, dtype=torch.bool))
        return Table(ids_, tree_map(merge, self.every, new), here)

    def among(self, present: Tensor) -> Table:
        """The table when exactly these clients exist."""
        return self._replace(here=torch.isin(self.ids, present.to(self.ids)))


def empty(row: Any) -> Table:
    """A table without clients, for uploads that look like `row`."""
    tensors = tree_map(lambda leaf: leaf.new_empty(0, *leaf.shape), row)
    ids = torch.empty(0, dtype=torch.int64, device=tensors[0].device)
    return Table(ids, tensors, ids.bool())
