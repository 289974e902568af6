"""Rounds, simulated seconds and joules until a run reaches a score that all runs reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedtide.measure.metrics import Metric
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.windows import evaluated
from fedtide.record.line import Line

COSTS: dict[str, Callable[[Line], float]] = {
    "rounds_to_target": lambda line: 1.0,
    "seconds_to_target": lambda line: float(line.get("latency", 0)),
    "joules_to_target": lambda line: float(line.get("joules", 0)),
}


def common_target(runs: Sequence[Sequence[Line]], scale: Scale = ACCURACY) -> float | None:
    """The best score that every run reached, an accuracy in whole percents; None if clients change.

    If clients change, the score of one session says nothing about the next: see `recovery_rounds`. None also
    if nothing is learnt.
    """
    if not runs or any(len(lines) < 2 for lines in runs):
        return None
    if any(line["session"] != lines[0]["session"] for lines in runs for line in lines):
        return None
    scores = [[line.score for line in evaluated(lines, scale)] for lines in runs]
    if not all(scores):
        return None
    worst = scale.sign * min(scale.sign * scale.best(found) for found in scores)
    return scale.rounded(worst) or None


def to_target(
    lines: Sequence[Line], target: float | None, scale: Scale = ACCURACY
) -> dict[str, Metric]:
    """The costs of a run up to the first test at or above the target; costs of zero are left out."""
    if target is None:
        return {}
    spent = dict.fromkeys(COSTS, 0.0)
    for line in lines:
        for name, cost in COSTS.items():
            spent[name] += cost(line)
        if (score := scale.value(line)) is not None and scale.is_reached(score, target):
            break
    return {name: total for name, total in spent.items() if total}
