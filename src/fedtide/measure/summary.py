"""The metrics of every cell of a study with mean and standard deviation over the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fedtide.measure.metrics import Metric
from fedtide.measure.recovery import Compared, Recovery, against
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line


def summarised(
    study: str,
    cells: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Metric]], Mapping[str, str]]],
    cautions: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of summary.json, from each cell's settings, the metrics of its runs and what made them."""
    return {
        "study": study,
        "cautions": list(cautions),
        "cells": [
            {
                "settings": dict(settings),
                "metrics": {
                    name: spread([run.get(name) for run in runs])
                    for name in dict.fromkeys(name for run in runs for name in run)
                },
                "made_by": dict(made_by),
            }
            for settings, runs, made_by in cells
            if runs
        ],
    }


def beside(
    runs: Sequence[Mapping[int, Sequence[Line]]],
    references: Sequence[int],
    recovery: Recovery,
    transition_rounds: int,
    scale: Scale = ACCURACY,
) -> list[dict[int, Compared]]:
    """For each cell and seed, its run compared with that of the cell that is its reference."""
    return [
        {
            seed: against(run, runs[reference][seed], recovery, transition_rounds, scale)
            for seed, run in cell.items()
            if seed in runs[reference]
        }
        for cell, reference in zip(runs, references, strict=True)
    ]


def spread(values: Sequence[Metric | None]) -> dict[str, Any]:
    """Mean, sample standard deviation (0 for one seed) and the values, one per seed.

    Seeds without this metric (None) are left out, and so are empty lists; without any value, mean and
    deviation are None. A metric that is a list, one number per start, is averaged within each seed first,
    since seeds may have different numbers of starts. If all lists are equally long, `by_start` holds mean and
    deviation of each start.
    """
    means = [
        fmean(value) if isinstance(value, list) else value
        for value in values
        if value is not None and value != []
    ]
    found: dict[str, Any] = {**_over_seeds(means), "values": list(values)}
    listed = [value for value in values if isinstance(value, list)]
    if listed and means and is_even(listed):
        by_start = [_over_seeds(column) for column in zip(*listed, strict=True)]
        found["by_start"] = {key: [one[key] for one in by_start] for key in ("mean", "std")}
    return found


def is_even(lists: Sequence[Sequence[float]]) -> bool:
    """Are all lists equally long, so that their entries correspond?"""
    return len({len(entries) for entries in lists}) == 1


def _over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "std": None}
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0}
