"""Numbers about a whole run, computed from its journal alone."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedtide.record.journal import Line

Metric = float | list[float]

LAST = 5  # evaluations that `accuracy` averages


def metrics(lines: Sequence[Line], transition_rounds: int = 10) -> dict[str, Metric]:
    """The metrics of a run by name; accuracies are fractions between 0 and 1."""
    evaluated = [line for line in lines if line["accuracy"] is not None]
    accuracies = [line["accuracy"] for line in evaluated]
    return {
        "accuracy": fmean(accuracies[-LAST:]),
        "best_accuracy": max(accuracies),
        "transition_accuracy": transition_accuracy(evaluated, transition_rounds),
        "loss": fmean(line["loss"] for line in evaluated[-LAST:]),
        "bytes_up": float(sum(line["bytes_up"] for line in lines)),
        "bytes_down": float(sum(line["bytes_down"] for line in lines)),
        "wall_seconds": sum(sum(line["seconds"].values()) for line in lines),
    }


def transition_accuracy(evaluated: Sequence[Line], rounds: int) -> list[float]:
    """For each session after the first, the mean accuracy of its first rounds."""
    sessions: dict[int, list[Any]] = {}
    for line in evaluated:
        sessions.setdefault(line["session"], []).append(line)
    return [
        fmean(line["accuracy"] for line in members if line["round_in_session"] < rounds)
        for session, members in sorted(sessions.items())
        if session > 0 and members[0]["round_in_session"] < rounds
    ]
