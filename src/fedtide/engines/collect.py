"""The reports of a cohort, collected while other clients still train: stacked, or uploads added up."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import TrainingError
from fedtide.core.mix import added, weighted
from fedtide.core.trees import leaves, tree_map
from fedtide.core.types import Nothing
from fedtide.engines.base import Chunk
from fedtide.training.messages import Broadcast, Report, Row

Places = slice | NDArray[np.int64]


class Collector:
    """Stacks the reports of a cohort; where the chunk has weights, only the weighted sum of uploads is kept.

    The sum has the same bits as if the uploads were stacked first.
    """

    def __init__(self, broadcast: Broadcast, chunk: Chunk) -> None:
        self._broadcast, self._chunk = broadcast, chunk
        self._stack: Report | None = None  # as soon as its shapes are known
        self._total: Any = None

    def put(self, at: Places, report: Report) -> None:
        """Store the stacked reports of the clients at `at`.

        Call in cohort order: floating-point sums depend on it.
        """
        chunk, clients = self._chunk, len(self._chunk.ids)
        kept = report.row.rule if self._broadcast.rule.carried else Nothing()
        report = report._replace(row=Row(report.row.mine, kept, {}))
        self._check(at, report)
        if chunk.weights is not None and isinstance(at, slice):  # in the order of the cohort
            weights, before = chunk.weights[at], self._total
            total = (
                weighted(report.up, weights)
                if before is None
                else added(before, report.up, weights)
            )
            self._total, report = total, report._replace(up=Nothing())
        if isinstance(at, slice) and at == slice(0, clients):
            self._stack = report  # all in one: nothing to copy
            return

        def room(part: Tensor) -> Tensor:
            return part.new_empty((clients, *part.shape[1:]))

        def place(whole: Tensor, part: Tensor) -> Tensor:
            whole[at] = part
            return whole

        self._stack = tree_map(place, self._stack or tree_map(room, report), report)

    def all(self) -> Report:
        """The reports of the whole cohort, in its order."""
        assert self._stack is not None
        weights = self._chunk.weights
        if weights is None:
            return self._stack
        total = weighted(self._stack.up, weights) if self._total is None else self._total
        return self._stack._replace(up=total)

    def _check(self, at: Places, report: Report) -> None:
        """Raise a `TrainingError` where a loss or an upload is no longer made of finite numbers."""
        told = (report.training.loss, *leaves(report.up))
        if math.isfinite(sum(float(leaf.sum()) for leaf in told)):
            return  # one look at all
        sums = [leaf.flatten(1).sum(1) for leaf in leaves(report.up) if leaf.dim() > 1]
        broken = ~torch.isfinite(torch.stack([report.training.loss, *sums])).all(0)
        if broken.any():
            places = np.arange(len(self._chunk.ids))[at]
            first = int(
                np.argmin(np.where(broken.cpu().numpy(), places, len(places) + places.max()))
            )
            client, lr = self._chunk.ids[places[first]], self._broadcast.lr
            raise TrainingError(
                f"round {self._broadcast.t}, client {client}: the training loss and the update must be "
                f"numbers. Got a loss of {float(report.training.loss[first]):g} with a learning rate "
                f"of {lr:g}. Try a smaller train.lr, or clip gradients with train.optimiser.clip."
            )
