"""A whole chunk of clients in one stacked computation: `local_step`, vmapped over [U, dim]."""

import math
from functools import partial

import numpy as np
import torch
from torch.func import vmap

from fedtide.core.rng import torch_seed
from fedtide.core.trees import joined, repeated, rows, tree_map
from fedtide.core.types import Nothing
from fedtide.data.batches import Picks
from fedtide.engines.base import Engine, Errand, seeded
from fedtide.engines.client import (
    Lesson,
    Report,
    Row,
    State,
    begin,
    by_transform,
    conclude,
    local_step,
)

CHUNK_BYTES = {"cpu": 16 << 20}  # about a processor's cache; elsewhere memory is the limit
CHUNK_BYTES_ELSEWHERE = 1 << 30


class Vectorised(Engine):
    """Clients are sorted, longest first, so that those who are done drop off the end."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        order = torch.argsort(errand.walk.steps, descending=True, stable=True)
        parts = torch.split(order, self._chunk(lesson, errand.picks))
        work = partial(self._train, lesson, errand)
        if self.traits.is_random:
            seed = torch_seed(self.data.seed, "dropout", *errand.address)
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
        state = _stacked(lesson, row, len(part))
        step = vmap(
            partial(local_step, by_transform, lesson),
            in_dims=(0, 0, 0, None),
            randomness="different",
        )
        for k in range(int(counts[0])):
            active = int(np.count_nonzero(counts > k))  # those not yet finished
            batch = self.batch(index[:active, k], mask[:active, k])
            if active == len(part):
                state = step(state, batch, row.mine, k)
            else:
                now = step(rows(state, slice(active)), batch, rows(row.mine, slice(active)), k)
                tree_map(lambda whole, new: whole[: len(new)].copy_(new), state, now)
        return vmap(partial(conclude, lesson))(state, row.mine, walk)

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
