"""Forks of a study: the run of the first start, and what the others would have led to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from fedtide.core.errors import require
from fedtide.measure.names import names
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.run.fork import Forked, Watch, fork
from fedtide.run.study import Cell, Study

BILL = (
    "gradient_rounds",
    "gradient_uploads",
    "test_answers",
    "bytes_down",
    "bytes_up",
    "latency",
    "joules",
)


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


def fork_study(study: Study, rounds: int, watch: Watch = lambda: None) -> list[StudyRegret]:
    """Fork every problem of a study with every seed; its settings may differ in problems and starts only."""
    found = []
    for cells in problems_of(study):
        e, starts = cells[0].experiment, [cell.experiment.start for cell in cells]
        runs = {seed: fork(replace(e, seed=seed), starts, rounds, watch) for seed in study.seeds}
        labels = names([{"start": cell.settings["start"]} for cell in cells])
        posed = [str(v) for name, v in cells[0].settings.items() if name != "start"]
        found.append(StudyRegret(", ".join(posed), tuple(labels), runs, study.scale))
    return found


def problems_of(study: Study) -> list[list[Cell]]:
    """The cells of each problem of a study, which differ in their starts."""
    problems: dict[str, list[Cell]] = {}
    for cell in study.cells:
        posed = {name: value for name, value in cell.settings.items() if name != "start"}
        problems.setdefault(json.dumps(posed, sort_keys=True, default=str), []).append(cell)
    fewest = min(len(cells) for cells in problems.values())
    do = "List several starts under [compare]."
    require(fewest > 1, "compare.start", "two or more starts of each problem", fewest, do)
    return list(problems.values())


def rounds_to_follow(study: Study) -> int:
    """The rounds of all runs that are followed."""
    lengths = [cells[0].experiment.population.length for cells in problems_of(study)]
    return sum(lengths) * len(study.seeds)
