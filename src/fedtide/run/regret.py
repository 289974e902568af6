"""Forks of a study: the run of the first start, and what the others would have led to."""

from __future__ import annotations

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
        ways = [cell.settings for cell in cells]
        differ = [key for key in ways[0] if any(one.get(key) != ways[0][key] for one in ways)]
        labels = names([{key: one[key] for key in differ} for one in ways])
        posed = [str(value) for key, value in ways[0].items() if key not in differ]
        found.append(StudyRegret(", ".join(posed), tuple(labels), runs, study.scale))
    return found


def problems_of(study: Study) -> list[list[Cell]]:
    """The cells of each problem of a study, which differ in their starts only."""
    problems: list[list[Cell]] = []
    for cell in study.cells:
        for cells in problems:
            first = cells[0].experiment
            if replace(cell.experiment, start=first.start) == first:
                cells.append(cell)
                break
        else:
            problems.append([cell])
    fewest = min(len(cells) for cells in problems)
    do = "Compare settings that differ in nothing but start."
    require(fewest > 1, "The study", "two or more starts of each problem", fewest, do)
    return problems


def rounds_to_follow(study: Study) -> int:
    """The rounds of all runs that are followed."""
    lengths = [cells[0].experiment.population.length for cells in problems_of(study)]
    return sum(lengths) * len(study.seeds)
