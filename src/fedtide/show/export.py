"""Results and journals as CSV: for spreadsheets, pandas, R."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from fedtide.measure.results import Results, Row
from fedtide.record.line import Line

Cells = Sequence[Any]
NUMBERS = (int, float)


def results_csv(results: Results) -> str:
    """One line per setting: every metric's mean and standard deviation over the seeds."""
    names = list(dict.fromkeys(name for row in results.rows for name in row.numbers))
    head = [f"{name}_{part}" for name in names for part in ("mean", "std")]
    lines = [
        [*_settings(results, row), len(row.finished), *_numbers(row, names)] for row in results.rows
    ]
    return written([[*results.keys, "finished_seeds", *head], *lines])


def rounds_csv(results: Results, stride: int = 1) -> str:
    """One line per round of every run, as in the journals: numbers only, every `stride`-th round."""
    kinds = {tuple(line): line for line in _lines(results)}  # one line of each kind knows the names
    names = list(dict.fromkeys(name for line in kinds.values() for name in scalars(line)))
    head = [*results.keys, "seed", *names]
    return written(chain([head], _rounds(results, names, stride)))


def scalars(line: Line) -> dict[str, Any]:
    """The numbers of a journal's line; those of a table such as `seconds` as `seconds.train`."""
    found = {}
    for name, value in line.items():
        if value is None or isinstance(value, NUMBERS):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name}.{key}": v for key, v in value.items() if isinstance(v, NUMBERS)}
    return found


def written(table: Iterable[Cells]) -> str:
    """A table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def _rounds(results: Results, names: Sequence[str], stride: int) -> Iterator[Cells]:
    for row in results.rows:
        for seed, lines in row.runs.items():
            for line in lines[::stride]:
                found = scalars(line)
                yield [*_settings(results, row), seed, *(found.get(name) for name in names)]


def _lines(results: Results) -> Iterator[Line]:
    return (line for row in results.rows for lines in row.runs.values() for line in lines)


def _settings(results: Results, row: Row) -> list[str]:
    return [row.words.get(key, "") for key in results.keys]


def _numbers(row: Row, names: Sequence[str]) -> Iterator[float | None]:
    for name in names:
        spread = row.numbers.get(name)
        yield from (spread.mean, spread.std) if spread else (None, None)
