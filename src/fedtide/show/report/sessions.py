"""When sessions began and ended, read from the journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedtide.measure.results import ResultRow
from fedtide.record.line import Line


class Span(NamedTuple):
    """One session; rounds and sessions are counted from 1."""

    number: int
    first: int
    last: int
    populations: frozenset[int]  # how many clients; more than one number if runs differ

    @property
    def clients(self) -> str:
        low, high = min(self.populations), max(self.populations)
        return str(low) if low == high else f"{low}-{high}"


def spans(lines: Sequence[Line]) -> list[Span]:
    """The sessions of one run."""
    found: list[Span] = []
    for line in lines:
        number, t = line["session"] + 1, line["t"] + 1
        if found and found[-1].number == number:
            found[-1] = found[-1]._replace(last=t)
        else:
            found.append(Span(number, t, t, frozenset([line["population"]])))
    return found


def common_spans(rows: Sequence[ResultRow]) -> list[Span] | None:
    """The sessions of all runs; None if they begin at different rounds in different runs."""
    runs = sorted((spans(lines) for row in rows for lines in row.runs.values()), key=_end)
    longest = runs[-1] if runs else []
    merged = list(longest)
    for run in runs:
        for place, span in enumerate(run):
            if (span.number, span.first) != (longest[place].number, longest[place].first):
                return None
            if place + 1 < len(run) and span.last != longest[place].last:
                return None
            seen = merged[place].populations | span.populations
            merged[place] = merged[place]._replace(populations=seen)
    return merged


def _end(run: Sequence[Span]) -> int:
    return run[-1].last
