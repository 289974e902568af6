"""The rounds after each start: the windows in which methods are compared where clients come and go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line


class EvaluatedLine(NamedTuple):
    """What is read here of a round in which the model was tested."""

    t: int
    score: float
    loss: float


def evaluated(lines: Iterable[Line], scale: Scale = ACCURACY) -> list[EvaluatedLine]:
    """The rounds in which the model was tested."""
    return [
        EvaluatedLine(line["t"], score, loss)
        for line in lines
        if (score := scale.value(line)) is not None and (loss := line["loss"]) is not None
    ]


class Window(NamedTuple):
    """The rounds from a start until before the next one, or until the end of the run."""

    first: int
    end: int  # the round after the last one

    def of(self, tested: Sequence[EvaluatedLine]) -> Sequence[EvaluatedLine]:
        """The tests in these rounds; `tested` is in the order of rounds."""
        first, end = (bisect_left(tested, t, key=attrgetter("t")) for t in self)
        return tested[first:end]


def windows(lines: Sequence[Line]) -> list[Window]:
    """A window for every start of a run but the very first one, which comes with the first clients.

    In a run that goes on from an archive, the first start has one, too: it chooses among earlier models.
    Where a journal names no starts, every session but the first is a window.
    """
    if any("start" in line for line in lines):
        firsts = [line["t"] for line in lines if line.get("start", 0) > 0]
    else:
        firsts = [line["t"] for line in lines if line["session"] and not line["round_in_session"]]
    ends = [*firsts[1:], lines[-1]["t"] + 1] if firsts else []
    return [Window(first, end) for first, end in zip(firsts, ends, strict=True)]


def transition_scores(
    tested: Sequence[EvaluatedLine], rounds: int, found: Sequence[Window]
) -> list[float]:
    """The mean score in the first rounds of each of these windows in which the model was tested then."""
    return [
        fmean(line.score for line in early)
        for first, end in found
        if (early := Window(first, min(end, first + rounds)).of(tested))
    ]
