"""The metrics of a run, computed from its journal alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypedDict, cast

from fedtide.core.errors import TrainingError
from fedtide.record.line import Line

Metric = float | list[float]

LAST = 5  # evaluations that `accuracy` averages
EPSILONS = ("epsilon", "simulated_epsilon")  # of real clients, and of a simulation
TUNABLE = ("accuracy", "best_accuracy", "mean_accuracy", "transition_accuracy")  # to choose by
RHO = 0.95  # a session has recovered at this share of the reference's peak


class EvaluatedLine(TypedDict):
    """The keys read here of a round in which the model was tested."""

    t: int
    session: int
    round_in_session: int
    accuracy: float
    loss: float


def metrics(lines: Sequence[Line], transition_rounds: int = 10) -> dict[str, Metric]:
    """The metrics of a run by name; accuracies are fractions between 0 and 1."""
    tested = evaluated(lines)
    if not tested:
        raise TrainingError(
            "evaluation.every must be small enough that the model is tested while clients exist. Got a "
            f"run of {len(lines)} rounds without a test. Set evaluation.every = 1."
        )
    accuracies = [line["accuracy"] for line in tested]
    last: Mapping[str, Any] = lines[-1]
    return {
        "accuracy": fmean(accuracies[-LAST:]),
        "best_accuracy": max(accuracies),
        "mean_accuracy": fmean(accuracies),
        "transition_accuracy": transition_accuracy(lines, transition_rounds),
        "loss": fmean(line["loss"] for line in tested[-LAST:]),
        **costs(lines),
        **snapshot_share(lines),
        **undefended_rounds(lines),
        **{name: last[name] for name in EPSILONS if name in last},
        "wall_seconds": sum(sum(line["seconds"].values()) for line in lines),
    }


def evaluated(lines: Iterable[Line]) -> list[EvaluatedLine]:
    """The rounds in which the model was tested."""
    return [cast(EvaluatedLine, line) for line in lines if line["accuracy"] is not None]


def snapshot_share(lines: Sequence[Line]) -> dict[str, float]:
    """The share of snapshot rounds, if participation is FAST."""
    snapshots = [line["snapshot"] for line in lines if "snapshot" in line]
    return {"snapshot_share": fmean(snapshots)} if snapshots else {}


def undefended_rounds(lines: Sequence[Line]) -> dict[str, float]:
    """The number of rounds whose cohort was too small for the defence, if it depends on the cohort's size."""
    found = [line["undefended"] for line in lines if "undefended" in line]
    return {"undefended_rounds": float(sum(found))} if found else {}


def costs(lines: Sequence[Line]) -> dict[str, float]:
    """The costs that section V of the DIMC paper counts, of all rounds and of all starts' gradient rounds."""
    gradient_rounds = sum(line.get("gradient_rounds", 0) for line in lines)
    return {
        "starts": float(sum("start" in line for line in lines)),
        "gradient_rounds": float(gradient_rounds),
        "broadcasts": float(sum(line["cohort"] > 0 for line in lines) + gradient_rounds),
        "uploads": float(sum(line["cohort"] + line.get("gradient_uploads", 0) for line in lines)),
        "steps": float(sum(line["steps"] for line in lines)),
        "bytes_up": float(sum(line["bytes_up"] for line in lines)),
        "bytes_down": float(sum(line["bytes_down"] for line in lines)),
        "latency": float(sum(line.get("latency", 0.0) for line in lines)),  # simulated seconds
        "joules": float(sum(line.get("joules", 0.0) for line in lines)),
        "stragglers": float(sum(len(line.get("stragglers", ())) for line in lines)),
        "stored_floats": float(max((line.get("stored_floats", 0) for line in lines), default=0)),
    }


def transition_accuracy(lines: Sequence[Line], rounds: int) -> list[float]:
    """For each session after the first, the mean accuracy of its first rounds."""
    return [
        fmean(line["accuracy"] for line in members if line["round_in_session"] < rounds)
        for session, members in by_session(lines).items()
        if session > 0 and members[0]["round_in_session"] < rounds
    ]


def time_to_accuracy(session: Sequence[EvaluatedLine], target: float) -> int:
    """T_rho, Eq. 31: the first round, from 1, to reach the target; one more than the last if none does."""
    reached = (line["round_in_session"] + 1 for line in session if line["accuracy"] >= target)
    return next(reached, session[-1]["round_in_session"] + 2)


def accumulated_gain(proposed: Sequence[EvaluatedLine], other: Sequence[EvaluatedLine]) -> float:
    """G_total, Eq. 32: the proposed method's accuracy minus the other's, summed over rounds both tested."""
    known = {line["t"]: line["accuracy"] for line in other}
    return float(
        sum([line["accuracy"] - known[line["t"]] for line in proposed if line["t"] in known])
    )


def against(
    lines: Sequence[Line], reference: Sequence[Line], rho: float = RHO
) -> dict[str, list[float]]:
    """Compare a run with the reference's run: one entry per session after the first that both have.

    `recovery_rounds` is T_rho relative to the reference's peak of that session; `accumulated_gain` is what
    the reference gained over this run.
    """
    pairs = list(_common_sessions(lines, reference))
    peaks = [max(line["accuracy"] for line in other) for _, other in pairs]
    return {
        "recovery_rounds": [
            float(time_to_accuracy(own, rho * peak))
            for (own, _), peak in zip(pairs, peaks, strict=True)
        ],
        "accumulated_gain": [accumulated_gain(other, own) for own, other in pairs],
    }


def by_session(lines: Sequence[Line]) -> Mapping[int, list[EvaluatedLine]]:
    """The evaluated lines of each session, in order."""
    sessions: dict[int, list[EvaluatedLine]] = {}
    for line in evaluated(lines):
        sessions.setdefault(line["session"], []).append(line)
    return dict(sorted(sessions.items()))


def _common_sessions(
    lines: Sequence[Line], reference: Sequence[Line]
) -> Iterator[tuple[list[EvaluatedLine], list[EvaluatedLine]]]:
    own, other = by_session(lines), by_session(reference)
    for session in own:
        if session > 0 and session in other:
            yield own[session], other[session]
