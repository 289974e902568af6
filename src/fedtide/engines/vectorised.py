"""A whole chunk of clients in one stacked computation: `local_step`, vmapped over [U, dim]."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import vmap

from fedtide.core.rng import torch_seed
from fedtide.core.trees import joined, repeated, rows, tree_map
from fedtide.core.types import Batch, Nothing, Walk
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand, Ground, InProcess, seeded
from fedtide.engines.collect import Places, Reports
from fedtide.training.client import (
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

Who = slice | NDArray[np.int64]
# From state, mine, k, who, and the width of their batches.
Step = Callable[[State, Any, int, Who, int], State]

CHUNK_BYTES = {"cpu": 16 << 20}  # about a processor's cache; elsewhere memory is the limit
CHUNK_BYTES_ELSEWHERE = 1 << 30


class Vectorised(InProcess):
    """Clients are sorted, longest first, so that those who are done drop off the end."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        seed = torch_seed(self.data.seed, "dropout", *errand.address, int(errand.ids[0]))
        order = np.argsort(-errand.walk.steps.cpu().numpy(), kind="stable")
        in_order = bool((order[1:] > order[:-1]).all())
        parts = self.parts(lesson, errand)
        places: list[Places] = [part if in_order else order[part] for part in parts]

        def work(at: Places) -> Report:
            return self.train(lesson, errand.some(at))

        reports, is_random = Reports(lesson, errand), self.traits.is_random
        with seeded(seed) if is_random else nullcontext():
            done = map(work, places) if is_random else self.across(work, places)
            for at, report in zip(places, done, strict=True):
                reports.put(at, report)
        return reports.all()

    def train(self, lesson: Lesson, errand: Errand) -> Report:
        """One chunk of clients, already sorted by their number of steps."""
        row, counts = errand.rows, errand.walk.steps.cpu().numpy()
        state, done = stacked(lesson, row, len(counts)), []
        step = self.step(lesson, errand.picks)
        mine, survey = row.mine, partial(self._survey, lesson, errand.ground)
        sizes = errand.picks.mask.sum(2)  # [U, K]
        unfinished = (counts > np.arange(int(counts[0]))[:, None]).sum(1).tolist()
        for k, active in enumerate(unfinished):
            if active < len(state.y):
                done.append(rows(state, slice(active, None)))
                state = rows(state, slice(active))
            mine = survey(state, mine, k, False)
            now = rows(mine, slice(active)) if active < len(counts) else mine
            for who, width in self._together(sizes[:active, k]):
                if isinstance(who, slice):
                    state = step(state, now, k, who, width)
                else:
                    some = torch.from_numpy(who).to(state.y.device)
                    new = step(rows(state, some), rows(now, some), k, who, width)
                    state = tree_map(lambda old, n, at=some: old.index_copy(0, at, n), state, new)
        state = joined([state, *reversed(done)])
        return self.concluded(lesson, errand, state, mine)

    def concluded(self, lesson: Lesson, errand: Errand, state: State, mine: Any) -> Report:
        """Clients after their last steps."""
        made = errand.walk.steps.cpu().numpy().astype(np.int64)
        mine = self._survey(lesson, errand.ground, state, mine, made, True)
        if lesson.algorithm.stacks_in("report"):
            return conclude(lesson, state, mine, Walk(*(each[:, None] for each in errand.walk)))
        return vmap(partial(conclude, lesson))(state, mine, errand.walk)

    def step(self, lesson: Lesson, picks: Picks) -> Step:
        """One local step of a stack of clients: in closed form where there is one, else vmapped."""
        examples, device = self.data.examples, lesson.down.x.device
        places, mask = (torch.from_numpy(field).to(device) for field in picks)
        targets, weights = examples.targets[places], mask.to(lesson.down.x)
        one = partial(local_step, by_transform, lesson)
        move: Callable[[State, Batch, Any, int], State] = (
            partial(chain_step, lesson)
            if self.has_closed_form(lesson)
            else vmap(one, in_dims=(0, 0, 0, None), randomness="different")
        )

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            with self.fetching():
                inputs = examples.inputs_at(places[who, k, :width])
            batch = Batch(inputs, targets[who, k, :width], weights[who, k, :width])
            return move(state, batch, mine, k)

        return step

    def has_closed_form(self, lesson: Lesson) -> bool:
        """Is a gradient here what `chain.gradients` computes?"""
        chain, width = lesson.task.chain, math.prod(self.data.examples.inputs.shape[1:])
        return chain is not None and chain[0].inputs == width

    def _together(self, sizes: NDArray[np.int64]) -> list[tuple[Who, int]]:
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

    def parts(self, lesson: Lesson, errand: Errand) -> list[slice]:
        """Which clients to stack: a function of the work alone, so that results never vary."""
        x, inputs = lesson.down.x, self.data.examples.inputs
        batch: int = errand.picks.places.shape[-1] * math.prod(inputs.shape[1:])
        each = 4 * (4 * x.numel() + batch)  # model, gradient, direction, optimiser; one batch
        budget = CHUNK_BYTES.get(x.device.type, CHUNK_BYTES_ELSEWHERE)
        return equal_parts(len(errand.ids), self.chunk or max(1, budget // int(each)))


def equal_parts(clients: int, most: int) -> list[slice]:
    """Parts of at most so many clients, for an even number of threads."""
    count = math.ceil(clients / most)
    size = math.ceil(clients / (count + (count > 1 and count % 2)))
    return [slice(k, min(k + size, clients)) for k in range(0, clients, size)]


def stacked(lesson: Lesson, row: Row, count: int) -> State:
    """All clients of a chunk at the start of their round, in memory that can be written to."""
    y, _, buffers, tally = repeated(begin(lesson, Row(Nothing(), Nothing(), {})), count)
    state: State = tree_map(torch.clone, State(y, row.rule, row.buffers or buffers, tally))
    return state
