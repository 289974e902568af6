"""Linear models and MLPs on a CPU: whole local rounds in compiled code, client by client."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from fedtide.core.compiled import Rows, gradients, walk
from fedtide.data.batches import Picks
from fedtide.engines.base import Errand
from fedtide.engines.client import Lesson, Report, State, followed, untouched
from fedtide.engines.rules import Sgd
from fedtide.engines.vectorised import Step, Vectorised, Who, stacked


class Compiled(Vectorised):
    """Rounds of SGD need nothing else; whatever an algorithm adds to a step stays stacked."""

    def train(self, lesson: Lesson, errand: Errand) -> Report:
        if not self._walks(lesson):
            return super().train(lesson, errand)
        chain, rule, state = (
            lesson.task.chain,
            lesson.rule,
            stacked(lesson, errand.rows, len(errand.ids)),
        )
        assert chain is not None
        assert isinstance(rule, Sgd)
        made = np.arange(errand.picks.mask.shape[1]) < errand.walk.steps.numpy()[:, None]
        rows = self._rows(errand.picks)
        rows = rows._replace(sizes=rows.sizes * made)
        velocity = (
            state.rule.v if rule.momentum else torch.zeros_like(state.y) if rule.decay else None
        )
        seen = walk(chain, state.y, velocity, rows, lesson.lr, rule.momentum, rule.decay)
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

    def parts(self, lesson: Lesson, errand: Errand) -> list[slice]:
        """As many as there are threads, with equally many steps: nobody sees who else is in a part."""
        if not self._walks(lesson):
            return super().parts(lesson, errand)
        steps = np.cumsum(errand.walk.steps.numpy())
        ends = np.searchsorted(steps, steps[-1] * np.arange(1, self.workers) / self.workers) + 1
        cuts = np.unique([0, *ends, len(steps)]).tolist()
        return [slice(*pair) for pair in pairwise(cuts)]

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
