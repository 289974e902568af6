"""The score by which a study judges its models: its name, whether more is better, and how it reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedtide.tasks.objective import Objective


class Scale(NamedTuple):
    """A score; accuracies are shown in percent."""

    name: str = "accuracy"
    larger: bool = True  # is more of it better?

    @classmethod
    def all_of(cls, objective: Objective) -> list[Scale]:
        """The scores of a task; models are judged by the first."""
        return [cls(score.name, score.larger) for score in objective.scores]

    @property
    def is_accuracy(self) -> bool:
        """Is it the share of right answers?"""
        return self.name == "accuracy"

    @property
    def sign(self) -> int:
        """A factor after which more is better."""
        return 1 if self.larger else -1

    def metric(self, when: str = "") -> str:
        """The name of a metric of a run that is made of this score: `transition_` + this."""
        return when + ("accuracy" if self.is_accuracy else "score")

    def value(self, line: Mapping[str, Any]) -> float | None:
        """The score in a line of a journal; None if the model was not tested."""
        found: float | None = line["accuracy"] if self.is_accuracy else line.get("score")
        return found

    def best(self, values: Iterable[float]) -> float:
        """The best of these scores."""
        return max(values) if self.larger else min(values)

    def is_reached(self, value: float, target: float) -> bool:
        """Is a score at least as good as the target?"""
        return value >= target if self.larger else value <= target

    def floor(self, line: Mapping[str, Any]) -> float:
        """The score of a model that has learnt nothing: 0 for accuracy, else as noted in this round."""
        return 0.0 if self.is_accuracy else float(line["untrained_score"])

    def rounded(self, value: float) -> float:
        """A score that is a little easier to reach, with few digits."""
        if self.is_accuracy:
            return math.floor(100 * value) / 100
        step = 10 ** (math.floor(math.log10(abs(value))) - 1) if value else 1.0
        digits = max(0, 1 - math.floor(math.log10(step)))
        return round(self.sign * math.floor(self.sign * value / step) * step, digits)

    @property
    def title(self) -> str:
        """The score and its unit."""
        return "accuracy (%)" if self.is_accuracy else self.name

    @property
    def factor(self) -> float:
        """By which a score is multiplied to be shown."""
        return 100.0 if self.is_accuracy else 1.0

    def text(self, value: float) -> str:
        """A score as text: `93.1%` or `0.931`."""
        return f"{value:.1%}" if self.is_accuracy else f"{value:.4g}"

    def aim(self, value: float) -> str:
        """A score to reach, in the words of a column: `60 %` or `0.6`."""
        return f"{100 * value:.4g} %" if self.is_accuracy else f"{value:g}"

    def apart(self, difference: float, margin: float, sign: str = "") -> str:
        """A difference with half of its interval: `1.3 ± 0.4`, for accuracies in percentage points."""
        if self.is_accuracy:
            return f"{100 * difference:{sign}.1f} ± {100 * margin:.1f}"
        return f"{difference:{sign}.3g} ± {margin:.2g}"


ACCURACY = Scale()


def scales(about: Mapping[str, Any]) -> list[Scale]:
    """The scores of a study, from its study.json."""
    return [Scale(score["name"], score["larger"]) for score in about.get("scores", [])] or [
        ACCURACY
    ]
