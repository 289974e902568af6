"""Linear models and MLPs on a CPU: whole local rounds in compiled code, client by client."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.compiled import Rows, gradients, walk
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand
from fedtide.engines.client import Lesson, Report, State, followed, untouched
from fedtide.engines.rules import Sgd
from fedtide.engines.vectorised import Step, Vectorised, Who, stacked


class Compiled(Vectorised):
    """Rounds of SGD need nothing else; whatever an algorithm adds to a step stays stacked."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        if not self._walks(lesson):
            return super().cohort(lesson, errand)
        chain, rule, state = (
            lesson.task.chain,
            lesson.rule,
            stacked(lesson, errand.rows, len(errand.ids)),
        )
        assert chain is not None
        assert isinstance(rule, Sgd)
        velocity = (
            state.rule.v if rule.momentum else torch.zeros_like(state.y) if rule.decay else None
        )
        rows, steps = self._rows(errand.picks), errand.walk.steps.numpy()
        rows.sizes[np.arange(rows.sizes.shape[1]) >= steps[:, None]] = 0

        def some(part: slice) -> Tensor:
            inputs, *picks = rows
            mine = Rows(inputs, *(field[part] for field in picks))
            v = None if velocity is None else velocity[part]
            return walk(chain, state.y[part], v, mine, lesson.lr, rule.momentum, rule.decay)

        seen = torch.cat(self.across(some, self._shares(steps)))
        return self.concluded(lesson, errand, state._replace(tally=seen), errand.rows.mine)

    def step(self, lesson: Lesson, picks: Picks) -> Step:
        if not self.has_closed_form(lesson):
            return super().step(lesson, picks)
        chain, rows = lesson.task.chain, self._rows(picks)
        assert chain is not None

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            now = Rows(rows.inputs, *(field[who, k : k + 1] for field in rows[1:]))
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
        alone = untouched(lesson.algorithm) and lesson.algorithm.surveys != "epochs"
        return sgd and alone and self.has_closed_form(lesson)

    def _rows(self, picks: Picks) -> Rows:
        examples, places = self.data.examples, torch.from_numpy(picks.places)
        labels = examples.targets[places].numpy()
        at = picks.places if examples.rows is None else examples.rows[places].numpy()
        return Rows(examples.inputs.flatten(1).numpy(), at, labels, picks.mask.sum(2))
