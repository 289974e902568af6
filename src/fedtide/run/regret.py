"""Forks of a study: the run of the first start, and what the others would have led to."""

from __future__ import annotations

import json
from dataclasses import replace

from fedtide.core.errors import require
from fedtide.measure.names import names
from fedtide.measure.regret import StudyRegret
from fedtide.run.fork import Watch, fork
from fedtide.run.study import Cell, Study


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
