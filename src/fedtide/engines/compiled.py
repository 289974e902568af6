"""Linear models and MLPs on a CPU: whole local rounds in compiled code, client by client."""

from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.compiled import Rows, gradients, walk
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand
from fedtide.engines.client import Lesson, Report, State, followed, penalises, untouched
from fedtide.engines.rules import Sgd
from fedtide.engines.vectorised import CHUNK_BYTES, Step, Vectorised, Who, stacked

GRAIN = 2_000_000  # multiplications of a step that are worth its calls from Python
MOST_PARTS = 8


class Compiled(Vectorised):
    """Rounds of SGD need nothing else; whatever an algorithm adds to a step stays stacked."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        if not self._walks(lesson):
            return super().cohort(lesson, errand)
        chain, rule, steps = lesson.task.chain, lesson.rule, errand.walk.steps.numpy()
        assert chain is not None
        assert isinstance(rule, Sgd)
        state, rows = stacked(lesson, errand.rows, len(steps)), self._rows(errand.picks)
        velocity = torch.zeros_like(state.y) if rule.decay else None
        velocity = state.rule.v if rule.momentum else velocity
        rows.sizes[np.arange(rows.sizes.shape[1]) >= steps[:, None]] = 0

        def some(part: slice) -> Tensor:
            y, v = state.y[part], None if velocity is None else velocity[part]
            return walk(chain, y, v, rows.some(part), lesson.lr, rule.momentum, rule.decay)

        seen = torch.cat(self.across(some, self._shares(steps)))
        return self.concluded(lesson, errand, state._replace(tally=seen), errand.rows.mine)

    def parts(self, lesson: Lesson, errand: Errand) -> list[slice]:
        """Equal parts: enough for a few threads, but large enough to be worth the way into them."""
        if self.chunk or penalises(lesson):
            return super().parts(lesson, errand)
        clients, dim = len(errand.ids), lesson.down.x.numel()
        worth = GRAIN // (dim * errand.picks.places.shape[-1])
        fits = CHUNK_BYTES["cpu"] // (16 * dim)  # model, gradient, direction, optimiser
        count = ceil(clients / max(1, min(fits, max(worth, ceil(clients / MOST_PARTS)))))
        size = ceil(clients / count)
        return [slice(k, k + size) for k in range(0, clients, size)]

    def step(self, lesson: Lesson, picks: Picks) -> Step:
        if penalises(lesson):
            return super().step(lesson, picks)
        chain, rows = lesson.task.chain, self._rows(picks)
        assert chain is not None

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            now = rows.some(who, slice(k, k + 1))
            return followed(lesson, state, *gradients(chain, state.y, now), mine, k)

        return step

    def _shares(self, steps: NDArray[np.float32]) -> list[slice]:
        """A part of the cohort for each thread, with about equally many steps."""
        made = np.cumsum(steps)
        ends = np.searchsorted(made, made[-1] * np.arange(1, self.workers) / self.workers) + 1
        return [slice(*pair) for pair in pairwise(np.unique([0, *ends, len(steps)]).tolist())]

    def _walks(self, lesson: Lesson) -> bool:
        """Is a local round nothing but SGD?"""
        sgd = isinstance(lesson.rule, Sgd) and not lesson.rule.clip
        return sgd and untouched(lesson) and lesson.algorithm.surveys != "epochs"

    def _rows(self, picks: Picks) -> Rows:
        examples, places = self.data.examples, torch.from_numpy(picks.places)
        labels = examples.targets[places].numpy()
        at = picks.places if examples.rows is None else examples.rows[places].numpy()
        return Rows(examples.inputs.flatten(1).numpy(), at, labels, picks.mask.sum(2))
