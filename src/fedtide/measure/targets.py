"""Rounds, simulated seconds and joules until a run reaches an accuracy that all runs reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedtide.measure.metrics import Metric
from fedtide.record.line import Line

COSTS: dict[str, Callable[[Line], float]] = {
    "rounds_to_target": lambda line: 1.0,
    "seconds_to_target": lambda line: float(line.get("latency", 0)),
    "joules_to_target": lambda line: float(line.get("joules", 0)),
}


def common_target(runs: Sequence[Sequence[Line]]) -> float | None:
    """The highest whole percentage that every run reached; None if clients change or nothing is learnt.

    If clients change, an accuracy of one session says nothing about the next: see `recovery_rounds`.
    """
    if not runs or any(len(lines) < 2 for lines in runs):
        return None
    if any(line["session"] != lines[0]["session"] for lines in runs for line in lines):
        return None
    peaks = [max((line["accuracy"] or 0.0 for line in lines), default=0.0) for lines in runs]
    return math.floor(100 * min(peaks)) / 100 or None


def to_target(lines: Sequence[Line], target: float | None) -> dict[str, Metric]:
    """The costs of a run up to the first test at or above the target; costs of zero are left out."""
    if target is None:
        return {}
    spent = dict.fromkeys(COSTS, 0.0)
    for line in lines:
        for name, cost in COSTS.items():
            spent[name] += cost(line)
        if line["accuracy"] is not None and line["accuracy"] >= target:
            break
    return {name: total for name, total in spent.items() if total}
