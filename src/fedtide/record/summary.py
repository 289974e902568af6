"""A study in numbers: metrics of every cell, with mean and spread over the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fedtide.record.journal import Line
from fedtide.record.metrics import Metric, against


def summarised(
    study: str, cells: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Metric]]]]
) -> dict[str, Any]:
    """The content of summary.json, from each cell's settings and the metrics of its runs."""
    return {
        "study": study,
        "cells": [
            {
                "settings": dict(settings),
                "metrics": {name: spread([m[name] for m in runs]) for name in runs[0]},
            }
            for settings, runs in cells
            if runs
        ],
    }


def beside_first(
    runs: Sequence[Mapping[int, Sequence[Line]]],
) -> list[dict[int, dict[str, list[float]]]]:
    """For each cell and seed, how its run went beside that of the grid's first cell (Eqs. 31-32 of DIMC)."""
    first = runs[0] if runs else {}
    return [
        {seed: against(lines, first[seed]) for seed, lines in cell.items() if seed in first}
        for cell in runs
    ]


def spread(values: Sequence[Metric]) -> dict[str, Any]:
    """Mean, sample standard deviation (0 for one seed) and the values, one per seed.

    For a metric that is a list, mean and deviation are lists too, place by place as far as all seeds go.
    """
    columns = list(zip(*(v if isinstance(v, list) else [v] for v in values), strict=False))
    mean = [fmean(column) for column in columns]
    std = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
    if isinstance(values[0], list):
        return {"mean": mean, "std": std, "values": list(values)}
    return {"mean": mean[0], "std": std[0], "values": list(values)}
