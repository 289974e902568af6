"""The metrics of every cell of a study with mean and standard deviation over the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fedtide.measure.metrics import Metric, against
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line


def summarised(
    study: str,
    cells: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Metric]]]],
    cautions: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of summary.json, from each cell's settings and the metrics of its runs."""
    return {
        "study": study,
        "cautions": list(cautions),
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
    problems: Sequence[Sequence[int]],
    scale: Scale = ACCURACY,
) -> list[dict[int, dict[str, list[float]]]]:
    """For each cell and seed, its run compared with that of its problem's first cell (Eqs. 31-32 of DIMC).

    `problems` lists the numbers of the cells that solve the same problem.
    """
    first = {number: runs[rows[0]] for rows in problems for number in rows}
    return [
        {
            seed: against(run, first[n][seed], scale=scale)
            for seed, run in cell.items()
            if seed in first[n]
        }
        for n, cell in enumerate(runs)
    ]


def spread(values: Sequence[Metric]) -> dict[str, Any]:
    """Mean, sample standard deviation (0 for one seed) and the values, one per seed.

    A metric that is a list, one number per session, is averaged within each seed first, since seeds may have
    different numbers of sessions. Seeds with an empty list are left out; if all lists are empty, mean and
    deviation are None. If all lists are equally long, `by_session` holds mean and deviation of each session.
    """
    listed = [value for value in values if isinstance(value, list)]
    if not listed:
        return {**_over_seeds(values), "values": list(values)}
    means = [fmean(sessions) for sessions in listed if sessions]
    found = {**(_over_seeds(means) if means else {"mean": None, "std": None}), "values": listed}
    if means and is_even(listed):
        by_session = [_over_seeds(column) for column in zip(*listed, strict=True)]
        found["by_session"] = {key: [one[key] for one in by_session] for key in ("mean", "std")}
    return found


def is_even(lists: Sequence[Sequence[float]]) -> bool:
    """Are all lists equally long, so that their sessions correspond?"""
    return len({len(sessions) for sessions in lists}) == 1


def _over_seeds(values: Sequence[Any]) -> dict[str, Any]:
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0}
