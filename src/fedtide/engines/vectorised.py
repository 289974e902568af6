"""A whole chunk of clients in one stacked computation: `local_step`, vmapped over [U, dim]."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import vmap

from fedtide.algorithms.base import Algorithm
from fedtide.core.rng import torch_seed
from fedtide.core.trees import joined, repeated, rows, tree_map
from fedtide.core.types import Batch, Nothing
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand, Ground, InProcess, seeded
from fedtide.engines.client import (
    Lesson,
    Report,
    Row,
    State,
    begin,
    by_transform,
    chain_step,
    conclude,
    local_step,
    surveyed,
)

CHUNK_BYTES = {"cpu": 16 << 20}  # about a processor's cache; elsewhere memory is the limit
CHUNK_BYTES_ELSEWHERE = 1 << 30


class Vectorised(InProcess):
    """Clients are sorted, longest first, so that those who are done drop off the end."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        order = torch.argsort(errand.walk.steps, descending=True, stable=True)
        parts = torch.split(order, self._chunk(lesson, errand.picks))
        work = partial(self._train, lesson, errand)
        if self.traits.is_random:
            seed = torch_seed(self.data.seed, "dropout", *errand.address, int(errand.ids[0]))
            with seeded(seed):
                reports = [work(part) for part in parts]
        else:
            reports = self.across(work, parts)
        report: Report = rows(joined(reports), torch.argsort(order))
        return report

    def _train(self, lesson: Lesson, errand: Errand, part: torch.Tensor) -> Report:
        """One chunk of clients, already sorted by their number of steps."""
        row, walk = rows(errand.rows, part), rows(errand.walk, part)
        index, mask = (field[part.cpu().numpy()] for field in errand.picks)
        counts = walk.steps.cpu().numpy()
        state, done = _stacked(lesson, row, len(part)), []
        step = self._step(lesson)
        mine, survey = row.mine, partial(self._survey, lesson, _part(errand.ground, part))
        for k in range(int(counts[0])):
            active = int(np.count_nonzero(counts > k))  # those not yet finished
            if active < len(state.y):
                done.append(rows(state, slice(active, None)))
                state = rows(state, slice(active))
            mine = survey(state, mine, np.full(active, k), False)
            now = rows(mine, slice(active))
            for who, width in self._together(mask[:active, k]):
                batch = self.batch(index[who, k, :width], mask[who, k, :width])
                if isinstance(who, slice):
                    state = step(state, batch, now, k)
                else:
                    some = torch.from_numpy(who).to(state.y.device)
                    new = step(rows(state, some), batch, rows(now, some), k)
                    state = tree_map(lambda old, n, at=some: old.index_copy(0, at, n), state, new)
        state = joined([state, *reversed(done)])
        mine = survey(state, mine, counts.astype(np.int64), True)
        return vmap(partial(conclude, lesson))(state, mine, walk)

    def _step(self, lesson: Lesson) -> Callable[[State, Batch, Any, int], State]:
        """One local step of a stack of clients: in closed form where there is one, else vmapped."""
        chain, width = lesson.task.chain, math.prod(self.data.examples.inputs.shape[1:])
        plain = type(lesson.algorithm).penalty is Algorithm.penalty
        if chain and plain and chain[0].inputs == width:
            return partial(chain_step, lesson)
        return vmap(
            partial(local_step, by_transform, lesson),
            in_dims=(0, 0, 0, None),
            randomness="different",
        )

    def _together(self, mask: NDArray[np.bool_]) -> list[tuple[slice | NDArray[np.int64], int]]:
        """Clients whose batches [U, B] may be stacked, and the width of the stack.

        Rows that only fill the shape are harmless, unless the model mixes the examples of a batch as
        BatchNorm does; then only batches of one size go together.
        """
        sizes = mask.sum(1)
        if not self.traits.mixes or (sizes == sizes[0]).all():
            return [(slice(len(sizes)), int(sizes.max()))]
        return [(np.flatnonzero(sizes == size), int(size)) for size in np.unique(sizes)]

    def _survey(
        self,
        lesson: Lesson,
        ground: Ground | None,
        state: State,
        mine: Any,
        made: NDArray[np.int64],
        over: bool,
    ) -> Any:
        """The survey of clients that have made so many steps: of those who begin an epoch, or of all."""
        if ground is None or (lesson.algorithm.surveys == "end" and not over):
            return mine
        stride = ground.stride[: len(made)]
        who = np.flatnonzero(over | (made % stride == 0))
        if not len(who):
            return mine
        width = int(ground.mask[who].sum(1).max())
        batch = self.batch(ground.places[who, :width], ground.mask[who, :width])
        index, epoch = (
            torch.from_numpy(n).to(state.y.device) for n in (who, -(-made // stride)[who])
        )
        look = vmap(partial(surveyed, by_transform, lesson, over))
        new = look(rows(state, index), batch, rows(mine, index), epoch)
        if len(who) == len(ground.stride):
            return (
                new  # as in the first survey, which may put something else in the place of `mine`
            )
        return tree_map(lambda whole, some: whole.index_copy(0, index, some), mine, new)

    def _chunk(self, lesson: Lesson, picks: Picks) -> int:
        """How many clients to stack: a function of the work alone, so that results never vary."""
        if self.chunk:
            return self.chunk
        x, inputs = lesson.down.x, self.data.examples.inputs
        batch: int = picks.places.shape[-1] * math.prod(inputs.shape[1:])
        each = 4 * (4 * x.numel() + batch)  # model, gradient, direction, optimiser; one batch
        budget = CHUNK_BYTES.get(x.device.type, CHUNK_BYTES_ELSEWHERE)
        return max(1, budget // int(each))


def _part(ground: Ground | None, part: torch.Tensor) -> Ground | None:
    """The rows of some clients."""
    return ground and Ground(*(field[part.cpu().numpy()] for field in ground))


def _stacked(lesson: Lesson, row: Row, count: int) -> State:
    """All clients of a chunk at the start of their round, in memory that can be written to."""
    y, _, buffers, tally = repeated(begin(lesson, Row(Nothing(), Nothing(), {})), count)
    state: State = tree_map(torch.clone, State(y, row.rule, row.buffers or buffers, tally))
    return state
