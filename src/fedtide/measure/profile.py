"""Where the time of a study went: the seconds of its journals, added up by phase."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedtide.record.line import Line

# A round's phases as the journal books them, in the words of a reader.
PHASES = {
    "session": "sessions and starts",
    "select": "sampling and planning",
    "gather": "choosing and fetching examples",
    "train": "local training",
    "aggregate": "aggregation and probes",
    "evaluate": "evaluation",
    "record": "record and checkpoints",
}


class Phase(NamedTuple):
    """One phase of all rounds together."""

    name: str
    seconds: float
    share: float  # of all phases
    milliseconds: float  # of a round, the mean


def profile(journals: Iterable[Sequence[Line]]) -> list[Phase]:
    """The phases of these runs; the record of a round is booked with the round after it."""
    lines = [line["seconds"] for journal in journals for line in journal]
    sums = {phase: sum(seconds.get(phase, 0.0) for seconds in lines) for phase in PHASES}
    total = sum(sums.values()) or 1.0
    rounds = max(len(lines), 1)
    return [
        Phase(PHASES[phase], seconds, seconds / total, 1000 * seconds / rounds)
        for phase, seconds in sums.items()
    ]
