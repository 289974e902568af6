"""The wall time of a study by phase of a round, added up over its journals."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedtide.record.line import Line

# The phases of a round: names in the journal and names in the table.
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
    """One phase, added up over all rounds."""

    name: str
    seconds: float
    share: float  # of all phases
    milliseconds: float  # per round


def profile(journals: Iterable[Sequence[Line]]) -> list[Phase]:
    """The phases of these runs; writing a round's line counts in the round after it."""
    lines = [line["seconds"] for journal in journals for line in journal]
    sums = {phase: sum(seconds.get(phase, 0.0) for seconds in lines) for phase in PHASES}
    total = sum(sums.values()) or 1.0
    rounds = max(len(lines), 1)
    return [
        Phase(PHASES[phase], seconds, seconds / total, 1000 * seconds / rounds)
        for phase, seconds in sums.items()
    ]
