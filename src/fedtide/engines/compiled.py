"""Linear models and MLPs on a CPU: whole local rounds in compiled code, client by client."""

from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves, repeated, rows, tree_map
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand
from fedtide.engines.collect import Reports
from fedtide.engines.distil import teacher_of
from fedtide.engines.fast.affine import fits, holds, taken_apart
from fedtide.engines.fast.kernels import MADE_WITH, TARGET, Moves, Rows, gradients, prepare, walk
from fedtide.engines.vectorised import CHUNK_BYTES, Step, Vectorised, Who, equal_parts
from fedtide.training.client import (
    AnyAlgorithm,
    Lesson,
    Report,
    Row,
    State,
    followed,
)
from fedtide.training.optimisers import Sgd

GRAIN = 2_000_000  # multiplications of a step that are worth its calls from Python
MOST_PARTS = 8
# Where a round is one call: models that train together, and models whose uploads are made together.
BLOCK_BYTES, REPORT_BYTES = 64 << 20, 2 << 20


class Compiled(Vectorised):
    """Whole rounds, where all that an algorithm does to SGD is to add to it; else the gradients alone."""

    made_with, target = MADE_WITH, TARGET

    def __post_init__(self) -> None:
        super().__post_init__()
        examples, chain = self.data.examples, self.task.chain
        assert chain is not None
        targets, outputs = examples.targets, chain[-1].outputs
        wrong = targets[(targets < 0) | (targets >= outputs)]
        if len(wrong):  # compiled code would not notice
            raise EngineError(
                f"train.model must have an output for every label. Got {outputs} outputs and the "
                f"label {int(wrong[0])}. Give its last layer more outputs, or mend the labels."
            )
        self._inputs = examples.inputs.flatten(1).contiguous().numpy()
        self._room: Tensor | None = (
            None  # for models, again and again: new ones each time fragment the heap
        )
        self._known: dict[int, tuple[AnyAlgorithm, bool]] = {}  # does it do what it says?
        prepare(self.task.initial.x.dtype)

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        moves = self._moves(lesson, errand.rows.mine)
        if moves is None:
            return super().cohort(lesson, errand)
        reports, picked = Reports(lesson, errand), self._rows(errand.picks)
        steps, each = errand.walk.steps.numpy(), lesson.down.x.nbytes
        picked.sizes[np.arange(picked.sizes.shape[1]) >= steps[:, None]] = 0
        for block in equal_parts(len(steps), max(1, BLOCK_BYTES // each)):
            state = self._walked(lesson, errand.rows, picked, moves, block)
            for part in equal_parts(len(state.y), max(1, REPORT_BYTES // each)):
                at = slice(block.start + part.start, block.start + part.stop)
                reports.put(at, self._report(lesson, errand.some(at), rows(state, part)))
        return reports.all()

    def _report(self, lesson: Lesson, errand: Errand, state: State) -> Report:
        report = self.concluded(lesson, errand, state, errand.rows.mine)
        if any(map(partial(share_memory, self._room), leaves(report))):
            self._room = None  # they keep their models
        return report

    def _walked(self, lesson: Lesson, row: Row, picked: Rows, moves: Moves, block: slice) -> State:
        """These clients of a cohort after their last steps."""
        picked, moves, row = picked.some(block), moves.some(block), rows(row, block)
        x, chain, clients = lesson.down.x, lesson.task.chain, len(picked.places)
        assert chain is not None
        if self._room is None or len(self._room) < clients:
            self._room = x.new_empty(clients, len(x))
        y, rule = self._room[:clients], tree_map(torch.clone, row.rule)
        buffers = row.buffers or repeated(lesson.buffers, clients)

        def work(part: slice) -> Tensor:
            v = rule.v[part] if moves.momentum else None
            return walk(chain, x, y[part], v, picked.some(part), moves.some(part))

        made = (picked.sizes > 0).sum(1)
        seen = torch.cat(list(self.across(work, self._shares(made))))
        return State(y, rule, buffers, seen)

    def _moves(self, lesson: Lesson, mine: Any) -> Moves | None:
        """The steps of a round, if they are those of SGD with something that stays the same added."""
        rule, algorithm, x = lesson.rule, lesson.algorithm, lesson.down.x
        if type(rule) is not Sgd or rule.clip or algorithm.surveys == "epochs":
            return None
        if algorithm.has_own("rate") or not algorithm.stacks_in("direction"):
            return None
        teacher = None
        if algorithm.has_own("penalty"):
            assert lesson.task.chain is not None
            classes = lesson.task.chain[-1].outputs
            teacher = teacher_of(algorithm, lesson.down, rows(mine, 0), classes)
            if teacher is None:
                return None
        moves = Moves(lesson.lr, rule.momentum, rule.decay, teacher=teacher)
        if not algorithm.has_own("direction"):
            return moves
        added = taken_apart(algorithm.direction, lesson.down, mine)
        if added is None or not fits(added, x, mine):
            return None
        if id(algorithm) not in self._known:
            truly = holds(algorithm.direction, lesson.down, rows(mine, 0), x)
            self._known[id(algorithm)] = algorithm, truly
        if not self._known[id(algorithm)][1]:
            return None
        return moves._replace(weight=added.weight, anchor=added.anchor, shift=added.shift)

    def parts(self, lesson: Lesson, errand: Errand) -> list[slice]:
        """Equal parts: enough for a few threads, but large enough to be worth the way into them."""
        if self.chunk or lesson.algorithm.has_own("penalty"):
            return super().parts(lesson, errand)
        clients, dim = len(errand.ids), lesson.down.x.numel()
        worth = GRAIN // (dim * errand.picks.places.shape[-1])
        fits = CHUNK_BYTES["cpu"] // (16 * dim)  # model, gradient, direction, optimiser
        return equal_parts(clients, max(1, min(fits, max(worth, ceil(clients / MOST_PARTS)))))

    def step(self, lesson: Lesson, picks: Picks) -> Step:
        if lesson.algorithm.has_own("penalty"):
            return super().step(lesson, picks)
        chain, picked = lesson.task.chain, self._rows(picks)
        assert chain is not None

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            now = picked.some(who, slice(k, k + 1))
            return followed(lesson, state, *gradients(chain, state.y, now), mine, k)

        return step

    def _shares(self, steps: NDArray[np.int64]) -> list[slice]:
        """A part of the clients for each thread, with about equally many steps."""
        made = np.cumsum(steps)
        ends = np.searchsorted(made, made[-1] * np.arange(1, self.workers) / self.workers) + 1
        return [slice(*pair) for pair in pairwise(np.unique([0, *ends, len(steps)]).tolist())]

    def _rows(self, picks: Picks) -> Rows:
        examples, places = self.data.examples, torch.from_numpy(picks.places)
        with self.fetching():
            labels = examples.targets[places].long().numpy()
            at = places if examples.rows is None else examples.rows[places].long()
        return Rows(self._inputs, at.numpy(), labels, picks.mask.sum(2))


def share_memory(one: Tensor | None, other: Tensor) -> bool:
    """Is a change to one a change to the other?"""
    if one is None:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
