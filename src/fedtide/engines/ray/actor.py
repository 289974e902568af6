"""What a Ray actor does: it holds some clients and runs their rounds on an engine of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.trees import rows, tree_map
from fedtide.core.types import Buffers, Ids, Training
from fedtide.data.batches import ClientData
from fedtide.engines.base import NOBODY, BufferPolicy, Given, InProcess, Traits
from fedtide.engines.malloc import keep_freed_memory
from fedtide.tasks.task import Task
from fedtide.training.client import AnyAlgorithm
from fedtide.training.memory import Memory
from fedtide.training.optimisers import Rule

Array = NDArray[Any]


class Broadcast(NamedTuple):
    """What goes once to every machine in a round."""

    down: Any
    buffers: Buffers


class Order(NamedTuple):
    """One round's work for an actor."""

    algorithm: AnyAlgorithm
    rule: Rule
    lr: float
    ids: Ids
    steps: NDArray[np.int64]
    ages: NDArray[np.int64]
    t: int
    purpose: str
    weights: Array | None  # [U]: uploads come back as a sum, with these
    whole: bool  # return all memories, too, as they are before this round
    table: int = 0  # which memories
    alive: frozenset[int] = frozenset()  # all other tables may be forgotten
    anew: bool = True  # the actor does not know the table, or no longer: it comes with the order
    counted: Ids = (
        NOBODY  # clients of the table's last round here whose uploads the server has counted
    )


class Part(NamedTuple):
    """A part of a cohort: everything stacked, or the weighted sum of the uploads."""

    up: Any
    buffers: Buffers
    training: Training


class Kept(NamedTuple):
    """What clients remember."""

    ids: Ids
    rows: Any  # stacked

    def some(self, ids: Ids) -> Kept:
        """The part that belongs to these clients."""
        places = np.flatnonzero(np.isin(self.ids, ids))
        if len(places) == len(self.ids):
            return self
        return Kept(self.ids[places], rows(self.rows, places))


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
        inputs, targets, *places = (unpacked(array, self.device) for array in examples)
        arrays = {"inputs": inputs, "targets": targets, "rows": places[0] if places else None}
        data = replace(data, examples=replace(data.examples, **arrays))
        self.engine = kind(task, data, traits, buffers, workers, chunk)
        self.tables: dict[int, Memory] = {}
        self.waiting: dict[int, Kept] = {}  # what a table's last round taught, until it is counted

    def run(
        self, order: Order, broadcast: Broadcast, known: Sequence[Ids], *copies: Kept
    ) -> tuple[Part, Kept, Kept | None]:
        """One round of these clients: what they send, what it taught them, and all memories before it.

        A table that the actor does not know comes as `copies`, each with the clients it is `known` for.
        """
        memory = self._table(order, known, copies)
        algorithm, rule, lr, ids, steps, ages, t, purpose, weights = order[:9]
        down, buffers = unpacked(broadcast, self.device)
        weights = None if weights is None else unpacked(weights, self.device)
        assert self.engine is not None
        self.engine.memory = memory
        done = self.engine.perform(
            Given(algorithm, rule, lr, down, buffers, ids, steps, ages, t, purpose, weights)
        )
        self.waiting[order.table] = Kept(ids, done.rows)
        part = Part(done.up, done.buffers, done.training)
        whole = _packed_table(memory) if order.whole else None
        return packed(part), Kept(ids, packed(done.rows)), whole

    def _table(self, order: Order, known: Sequence[Ids], copies: Sequence[Kept]) -> Memory:
        """The memories of an order: as they were sent, or with what counted of the last round."""
        self.tables = {n: memory for n, memory in self.tables.items() if n in order.alive}
        taught = self.waiting.pop(order.table, None)
        self.waiting = {n: kept for n, kept in self.waiting.items() if n in order.alive}
        if order.anew:
            memory = self.tables[order.table] = Memory()
            for copy, ids in zip(copies, known, strict=True):
                part = copy.some(ids)
                memory.put(part.ids, unpacked(part.rows, self.device))
        elif taught is not None:
            self.tables[order.table].put(*taught.some(order.counted))
        return self.tables[order.table]


def _packed_table(memory: Memory) -> Kept:
    ids, kept = memory.kept()
    return Kept(ids, packed(kept))


def packed(tree: Any) -> Any:
    """A tree of arrays, which Ray moves without copies; of tensors it makes several."""
    return tree_map(lambda leaf: leaf.cpu().numpy(), tree)


def unpacked(tree: Any, device: str = "cpu") -> Any:
    """The tree of tensors again, in memory of their own: what Ray hands out must not be written to."""
    return tree_map(lambda leaf: torch.tensor(leaf, device=device), tree)
