"""Regrets: how far each start is from the best one at the same change, in hindsight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line

BILL = (
    "gradient_rounds",
    "gradient_uploads",
    "test_answers",
    "bytes_down",
    "bytes_up",
    "latency",
    "joules",
)


class Branch(NamedTuple):
    """Some rounds after a start."""

    start: int  # the number of the start in the study, from 0
    lines: Sequence[Line]
    bill: Mapping[str, float]  # what gradient rounds and tests of this start cost
    scale: Scale = ACCURACY

    @property
    def score(self) -> float:
        """The mean score over the rounds in which the model was tested."""
        scores = [self.scale.value(line) for line in self.lines]
        tested = [score for score in scores if score is not None]
        return fmean(tested) if tested else float("nan")


class Fork(NamedTuple):
    """A start of the followed run, and what each start of the study would have led to."""

    t: int
    branches: Sequence[Branch]

    @property
    def regrets(self) -> list[float]:
        """By how much the score of each start is worse than that of the best one, here in hindsight."""
        found = [branch.scale.sign * branch.score for branch in self.branches]
        return [max(found) - one for one in found]


class Forked(NamedTuple):
    """The followed run and its forks."""

    lines: list[Line]
    forks: list[Fork]


@dataclass(frozen=True)
class StudyRegret:
    """The forks of a study's starts on one problem, for every seed."""

    problem: str
    starts: tuple[str, ...]  # their names; the run of the first one is followed
    runs: Mapping[int, Forked]  # by seed
    scale: Scale = ACCURACY

    @property
    def totals(self) -> list[list[float]]:
        """The mean regret over the changes of each seed's run, of accuracies in points, for each start."""
        return [
            [
                self.scale.factor * fmean(one.regrets[number] for one in run.forks)
                for run in self.runs.values()
                if run.forks
            ]
            for number in range(len(self.starts))
        ]

    def summary(self) -> dict[str, Any]:
        """All numbers, as JSON."""
        return {
            "problem": self.problem,
            "starts": self.starts,
            "runs": [
                {
                    "seed": seed,
                    "forks": [
                        {
                            "t": one.t,
                            self.scale.metric(): [branch.score for branch in one.branches],
                            "regret": one.regrets,
                            "cost": [
                                {name: branch.bill[name] for name in BILL if name in branch.bill}
                                for branch in one.branches
                            ],
                        }
                        for one in run.forks
                    ],
                }
                for seed, run in self.runs.items()
            ],
        }
