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
from fedtide.core.types import Batch, Nothing, Walk
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
    declares,
    local_step,
    surveyed,
)

CHUNK_BYTES = {"cpu": 16 << 20}  # about a processor's cache; elsewhere memory is the limit
CHUNK_BYTES_ELSEWHERE = 1 << 30


class Vectorised(InProcess):
    """Clients are sorted, longest first, so that those who are done drop off the end."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        seed = torch_seed(self.data.seed, "dropout", *errand.address, int(errand.ids[0]))
        order = np.argsort(-errand.walk.steps.cpu().numpy(), kind="stable")
        in_order = bool((order[1:] > order[:-1]).all())
        errand = errand if in_order else errand.some(order)
        size = self._chunk(lesson, errand.picks)
        parts = [errand.some(slice(k, k + size)) for k in range(0, len(order), size)]
        work = partial(self._train, lesson)
        if self.traits.is_random:
            with seeded(seed):
                reports = [work(part) for part in parts]
        else:
            reports = self.across(work, parts)
        report: Report = joined(reports)
        back = torch.from_numpy(np.argsort(order)).to(errand.walk.steps.device)
        return report if in_order else rows(report, back)

    def _train(self, lesson: Lesson, errand: Errand) -> Report:
        """One chunk of clients, already sorted by their number of steps."""
        row, walk, examples = errand.rows, errand.walk, self.data.examples
        counts, mask = walk.steps.cpu().numpy(), errand.picks.mask
        places = torch.from_numpy(errand.picks.places).to(walk.steps.device)
        targets, weights = examples.targets[places], torch.from_numpy(mask).to(walk.steps)
        state, done = _stacked(lesson, row, len(counts)), []
        step = self._step(lesson)
        mine, survey = row.mine, partial(self._survey, lesson, errand.ground)
        sizes = mask.sum(2)  # [U, K]
        unfinished = (counts > np.arange(int(counts[0]))[:, None]).sum(1).tolist()
        for k, active in enumerate(unfinished):
            if active < len(state.y):
                done.append(rows(state, slice(active, None)))
                state = rows(state, slice(active))
            mine = survey(state, mine, k, False)
            now = rows(mine, slice(active)) if active < len(counts) else mine
            for who, width in self._together(sizes[:active, k]):
                inputs = examples.inputs_at(places[who, k, :width])
                batch = Batch(inputs, targets[who, k, :width], weights[who, k, :width])
                if isinstance(who, slice):
                    state = step(state, batch, now, k)
                else:
                    some = torch.from_numpy(who).to(state.y.device)
                    new = step(rows(state, some), batch, rows(now, some), k)
                    state = tree_map(lambda old, n, at=some: old.index_copy(0, at, n), state, new)
        state = joined([state, *reversed(done)])
        mine = survey(state, mine, counts.astype(np.int64), True)
        if declares(lesson.algorithm, "report"):
            return conclude(lesson, state, mine, Walk(*(each[:, None] for each in walk)))
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

    def _together(self, sizes: NDArray[np.int64]) -> list[tuple[slice | NDArray[np.int64], int]]:
        """Clients whose batches, of these sizes [U], may be stacked, and the width of the stack.

        Rows that only fill the shape are harmless, unless the model mixes the examples of a batch as
        BatchNorm does; then only batches of one size go together.
        """
        if not self.traits.mixes or (sizes == sizes[0]).all():
            return [(slice(len(sizes)), int(sizes.max()))]
        return [(np.flatnonzero(sizes == size), int(size)) for size in np.unique(sizes)]

    def _survey(
        self,
        lesson: Lesson,
        ground: Ground | None,
        state: State,
        mine: Any,
        made: NDArray[np.int64] | int,
        over: bool,
    ) -> Any:
        """The survey of clients that have made so many steps: of those who begin an epoch, or of all."""
        if ground is None or (lesson.algorithm.surveys == "end" and not over):
            return mine
        made = np.broadcast_to(made, len(state.y))
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


def _stacked(lesson: Lesson, row: Row, count: int) -> State:
    """All clients of a chunk at the start of their round, in memory that can be written to."""
    y, _, buffers, tally = repeated(begin(lesson, Row(Nothing(), Nothing(), {})), count)
    state: State = tree_map(torch.clone, State(y, row.rule, row.buffers or buffers, tally))
    return state
