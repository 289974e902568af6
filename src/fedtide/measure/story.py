"""What a run began with at each of its starts, why, and what that gained or cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.scale import Scale
from fedtide.measure.windows import EvaluatedLine, Window, evaluated, windows
from fedtide.record.line import Line

CURRENT = "the current model"
NAMED = 3  # models of a mix that are named; more are counted


class PopulationChange(NamedTuple):
    """How many clients came, how many of these had been here before, and how many left."""

    came: int
    returned: int
    left: int


class StartEvent(NamedTuple):
    """A start after the first one."""

    t: int
    present: int  # clients
    moves: PopulationChange  # since the start before
    reason: str
    source: str  # the model that was taken
    gain: float | None  # how much lower clients' loss is than at the current model, in their tests
    score: float | None  # mean over the first rounds
    beyond: float | None  # by how much that is better than the score of a run that only goes on
    costs: Mapping[str, float]  # of gradient rounds and tests


def goes_on(start: Any) -> bool:
    """Is this the start that goes on with the current model at every change?"""
    return (start.get("kind") if isinstance(start, Mapping) else start) == "previous"


def events(
    lines: Sequence[Line], other: Sequence[Line], rounds: int, scale: Scale
) -> Iterator[StartEvent]:
    """The starts with models to choose from; `other` has the lines of a run that only goes on, or none.

    That is every start but the first, and also the first one of a run that goes on from an archive.
    """
    tested, others = evaluated(lines, scale), evaluated(other, scale)
    starts = [line for line in lines if "start" in line]
    ends = {line["start"] - 1: line["t"] for line in starts[1:]}
    until = {window.first: window.end for window in windows(lines)}
    since = [0, *(line["t"] + 1 for line in starts)]
    for begun, line in zip(since, starts, strict=False):
        if not line["start"]:
            continue
        early = Window(line["t"], min(line["t"] + rounds, until[line["t"]]))
        score, known = _mean(early.of(tested)), _mean(early.of(others))
        beyond = None if score is None or known is None else scale.sign * (score - known)
        yield StartEvent(
            t=line["t"],
            present=line["population"],
            moves=moves(lines[begun : line["t"] + 1]),
            reason=line.get("start_reason", ""),
            source=source(line, ends),
            gain=line.get("start_gain"),
            score=score,
            beyond=beyond,
            costs=line.get("start_costs", {}),
        )


def _mean(tested: Sequence[EvaluatedLine]) -> float | None:
    return fmean(line.score for line in tested) if tested else None


def moves(lines: Sequence[Line]) -> PopulationChange:
    """Arrivals, returns and departures in these rounds, added up."""
    return PopulationChange(
        sum(line["arrived"]["clients"] for line in lines if "arrived" in line),
        sum(line.get("returned", 0) for line in lines),
        sum(line["left"]["clients"] for line in lines if "left" in line),
    )


def source(line: Line, ends: Mapping[int, int]) -> str:
    """The model of a start, in words; `ends` says after how many rounds each start's era ended."""
    if not line.get("start_from"):
        return "the untrained model" if line.get("start_untested") else CURRENT
    shares = zip(line["start_from"], line["start_weights"], strict=True)
    parts = sorted(((z, share) for z, share in shares if share), key=lambda part: -part[1])
    if [z for z, _ in parts] == [line["start"] - 1]:
        return CURRENT
    known = {**ends, line["start"] - 1: None}
    said = [_model(z, known) + f" ({share:.0%})" * (len(parts) > 1) for z, share in parts[:NAMED]]
    more = [f"{len(parts) - NAMED} more"] if len(parts) > NAMED else []
    return ", ".join(said + more)


def _model(number: int, ends: Mapping[int, int | None]) -> str:
    if number not in ends:
        return f"model {number} of the archive"
    return CURRENT if ends[number] is None else f"that of round {ends[number]}"
