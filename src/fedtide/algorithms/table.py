"""The last contribution of every client, kept at the server."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtide.core.trees import tree_map


class Table(NamedTuple):
    """One row per client seen, in the order of their numbers, so that it does not matter who came first."""

    ids: Tensor  # [n]
    rows: Any  # their last uploads, stacked: [n, ...]

    def with_rows(self, ids: Tensor, rows: Any) -> Table:
        """The table after these uploads: they take the place of earlier ones, newcomers are added."""
        every = torch.unique(torch.cat([self.ids, ids]))  # sorted
        old, new = torch.searchsorted(every, self.ids), torch.searchsorted(every, ids)

        def laid(before: Tensor, now: Tensor) -> Tensor:
            whole = now.new_empty(len(every), *now.shape[1:])
            return whole.index_copy_(0, old, before).index_copy_(0, new, now)

        return Table(every, tree_map(laid, self.rows, rows))

    def among(self, population: int) -> int:
        """U, of whom the table may know more than exist now: some may have left since."""
        return max(population, len(self.ids))


def empty(row: Any) -> Table:
    """A table without clients, for uploads that look like `row`."""
    tensors = tree_map(lambda leaf: leaf.new_empty(0, *leaf.shape), row)
    ids = torch.empty(0, dtype=torch.int64, device=tensors[0].device)
    return Table(ids, tensors)
