"""What a Ray actor does: it holds some clients and runs their rounds on an engine of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.mix import weighted
from fedtide.core.task import Task
from fedtide.core.trees import joined, tree_map
from fedtide.core.types import Buffers, Ids, Nothing, Training
from fedtide.data.batches import ClientData
from fedtide.engines.allocator import keep_freed_memory
from fedtide.engines.base import BufferPolicy, InProcess, Result, Traits
from fedtide.engines.client import AnyAlgorithm
from fedtide.engines.memory import Memory
from fedtide.engines.rules import Rule

Array = NDArray[Any]

BLOCK = 64  # clients whose uploads an actor holds at once where it adds them up


class Broadcast(NamedTuple):
    """What goes once to every machine in a round."""

    down: Any
    buffers: Buffers


class Weights(NamedTuple):
    """How much each client of an order counts in a sum."""

    up: Tensor  # [U]
    share: Tensor  # [U]: of the buffers


class Order(NamedTuple):
    """One round's work for an actor."""

    algorithm: AnyAlgorithm
    rule: Rule
    lr: float
    ids: Ids
    steps: NDArray[np.int64]
    t: int
    purpose: str
    weights: Weights | None  # None: uploads come back one by one
    whole: bool  # return all memories instead of those that changed
    table: int = 0  # which memories
    alive: frozenset[int] = frozenset()  # all other tables may be forgotten
    anew: bool = True  # the actor does not know the table, or no longer: it comes with the order


class Part(NamedTuple):
    """A part of a cohort: stacked, or its weighted sum."""

    up: Any
    buffers: Buffers
    training: Training | Nothing


class Kept(NamedTuple):
    """What clients remember."""

    ids: Ids
    rows: Any  # stacked


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
        keep_freed_memory()
        self.engine: InProcess | None = None

    def settle(self, settings: Settings, data: ClientData, *examples: Array) -> None:
        """Take the clients in; their examples come as plain arrays."""
        kind, task, traits, buffers, workers, chunk, self.device = settings
        if self.engine is not None:
            self.engine.close()
        inputs, targets, *rows = (unpacked(array, self.device) for array in examples)
        arrays = {"inputs": inputs, "targets": targets, "rows": rows[0] if rows else None}
        data = replace(data, examples=replace(data.examples, **arrays))
        self.engine = kind(task, data, traits, buffers, workers, chunk)
        self.tables: dict[int, Memory] = {}

    def run(self, order: Order, broadcast: Broadcast, *copies: Kept) -> tuple[Part, Kept]:
        """One round of these clients: what they send, and what they remember."""
        self.tables = {n: memory for n, memory in self.tables.items() if n in order.alive}
        if order.anew:
            self.tables[order.table] = Memory()
            for copy in copies:
                self.tables[order.table].put(copy.ids, unpacked(copy.rows, self.device))
        assert self.engine is not None
        memory = self.engine.memory = self.tables[order.table]
        received = unpacked(broadcast, self.device)
        part = (
            self._stacked(order, received) if order.weights is None else self._sum(order, received)
        )
        ids, rows_ = memory.kept(None if order.whole else order.ids)
        return packed(part), Kept(ids, packed(rows_))

    def _stacked(self, order: Order, received: Broadcast) -> Part:
        """Everything that the clients send, one by one."""
        done = self._round(order, received, slice(None))
        return Part(done.up, done.buffers, done.training)

    def _sum(self, order: Order, received: Broadcast) -> Part:
        """The weighted sum of what the clients send, a block of them at a time."""
        assert order.weights is not None
        total: Part | None = None
        training = []
        weights = unpacked(order.weights, self.device)
        for first in range(0, len(order.ids), BLOCK):
            block = slice(first, first + BLOCK)
            done = self._round(order, received, block)
            up, share = (each[block] for each in weights)
            wide = tree_map(torch.Tensor.double, done.buffers)  # counters too; rounded at the end
            part = Part(weighted(done.up, up), weighted(wide, share.double()), Nothing())
            total = part if total is None else tree_map(torch.add, total, part)
            training.append(done.training)
        assert total is not None
        return Part(total.up, total.buffers, joined(training))

    def _round(self, order: Order, received: Broadcast, block: slice) -> Result:
        algorithm, rule, lr, ids, steps, t, purpose = order[:7]
        down, buffers = received
        assert self.engine is not None
        return self.engine.run(
            algorithm, rule, lr, down, buffers, ids[block], steps[block], t, purpose
        )


def packed(tree: Any) -> Any:
    """A tree of arrays, which Ray moves without copies; of tensors it makes several."""
    return tree_map(lambda leaf: leaf.cpu().numpy(), tree)


def unpacked(tree: Any, device: str = "cpu") -> Any:
    """The tree of tensors again, in memory of their own: what Ray hands out must not be written to."""
    return tree_map(lambda leaf: torch.tensor(leaf, device=device), tree)
