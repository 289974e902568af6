"""Accuracies as papers print them, where a paper averages otherwise than FedTide's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from fedtide.measure.windows import evaluated, windows
from fedtide.record.line import Line

LAST = 5  # tests that FAST averages


class PrintedNumber(NamedTuple):
    """A number as a paper would print it, with what follows its plus-minus sign."""

    mean: float
    std: float


def dimc_windows(runs: Sequence[Sequence[Line]], rounds: int) -> list[PrintedNumber]:
    """For each start after the first, what Tables II, III and X of the DIMC paper have.

    The authors' list of accuracies begins with the untrained model, so a window of k rounds consists of the
    last round before the start and the first k - 1 after it. The deviation is the mean over these rounds of
    the sample deviation over the seeds. Empty if seeds start in different rounds or leave a round untested.
    """
    starts = {tuple(window.first for window in windows(lines)) for lines in runs}
    tested = [{line.t: line.score for line in evaluated(lines)} for lines in runs]
    if len(starts) != 1:
        return []
    found = []
    for first in starts.pop():
        window = range(first - 1, first + rounds - 1)
        if not all(t in run for run in tested for t in window):
            return []
        columns = [[run[t] for run in tested] for t in window]
        found.append(PrintedNumber(_mean(columns, fmean), _mean(columns, _deviation)))
    return found


def last_tests(runs: Sequence[Sequence[Line]]) -> list[PrintedNumber]:
    """What Tables 2 and 3 of FAST have: mean and deviation of a run's last five tests; means over seeds."""
    last = [[line.score for line in evaluated(lines)[-LAST:]] for lines in runs]
    return [PrintedNumber(_mean(last, fmean), _mean(last, _deviation))] if all(last) else []


def _mean(columns: Sequence[Sequence[float]], of: Callable[[Sequence[float]], float]) -> float:
    return fmean(of(column) for column in columns)


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def printed(
    runs: Sequence[Sequence[Line]], rounds: int
) -> Mapping[str, Sequence[Mapping[str, float]]]:
    """Every reading of these runs of one setting, one for each seed, by its name in summary.json."""
    found = {
        "dimc_windows": dimc_windows(runs, rounds),
        "last_tests": last_tests(runs),
    }
    return {name: [one._asdict() for one in numbers] for name, numbers in found.items() if numbers}
