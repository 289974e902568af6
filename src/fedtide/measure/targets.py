"""Rounds, simulated seconds and joules until a run reaches a score that all runs reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedtide.core.errors import require
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


def check_target(target: float | None, scale: Scale) -> None:
    """Raise a `ConfigError` if no model can reach this score."""
    if target is not None and scale.is_accuracy:
        require(0 < target <= 1, "target", "an accuracy in (0, 1], such as 0.6", target)


def to_target(
    lines: Sequence[Line], target: float | None, scale: Scale = ACCURACY
) -> dict[str, Metric]:
    """The costs of a run up to the first test that reaches the target; costs of zero are left out.

    Empty for a run that does not reach it.
    """
    if target is None:
        return {}
    spent = dict.fromkeys(COSTS, 0.0)
    for line in lines:
        for name, cost in COSTS.items():
            spent[name] += cost(line)
        if (score := scale.value(line)) is not None and scale.is_reached(score, target):
            return {name: total for name, total in spent.items() if total}
    return {}


def by_seed(runs: Mapping[int, Mapping[str, Metric]]) -> Mapping[int, Mapping[str, Metric]]:
    """The costs to the target of the runs of a setting: of none, unless all of them reach it.

    The mean over the seeds that do would be that of the lucky ones.
    """
    return runs if all(runs.values()) else {seed: {} for seed in runs}


def missed(
    target: float, rows: Sequence[tuple[str, Sequence[Sequence[Line]]]], scale: Scale
) -> list[str]:
    """A sentence about settings, given by name with their runs, of which a run misses the target."""
    found = [
        f"{name} ({reached} of {len(runs)} seeds)"
        for name, runs in rows
        if (reached := sum(bool(to_target(lines, target, scale)) for lines in runs)) < len(runs)
    ]
    if not found:
        return []
    return [
        f"Not every run reaches {scale.aim(target)}: {'; '.join(found)}. Those settings have no number of "
        "rounds to it."
    ]
