"""Numbers about runs, computed from their journals alone."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from fedtide.core.errors import TrainingError
from fedtide.record.journal import Line

Metric = float | list[float]

LAST = 5  # evaluations that `accuracy` averages
EPSILONS = ("epsilon", "simulated_epsilon")  # of real clients, and of a simulation
RHO = 0.95  # of the reference's peak: when a session counts as recovered


def metrics(lines: Sequence[Line], transition_rounds: int = 10) -> dict[str, Metric]:
    """The metrics of a run by name; accuracies are fractions between 0 and 1."""
    evaluated = [line for line in lines if line["accuracy"] is not None]
    if not evaluated:
        raise TrainingError(
            "evaluation.every must be small enough that the model is tested while clients exist. Got a "
            f"run of {len(lines)} rounds without a test. Set evaluation.every = 1."
        )
    accuracies = [line["accuracy"] for line in evaluated]
    return {
        "accuracy": fmean(accuracies[-LAST:]),
        "best_accuracy": max(accuracies),
        "transition_accuracy": transition_accuracy(evaluated, transition_rounds),
        "loss": fmean(line["loss"] for line in evaluated[-LAST:]),
        **costs(lines),
        **snapshot_share(lines),
        **undefended_rounds(lines),
        **{name: lines[-1][name] for name in EPSILONS if name in lines[-1]},
        "wall_seconds": sum(sum(line["seconds"].values()) for line in lines),
    }


def snapshot_share(lines: Sequence[Line]) -> dict[str, float]:
    """The share of uniform rounds, where participation is FAST."""
    snapshots = [line["snapshot"] for line in lines if "snapshot" in line]
    return {"snapshot_share": fmean(snapshots)} if snapshots else {}


def undefended_rounds(lines: Sequence[Line]) -> dict[str, float]:
    """How many rounds were too small for the defence, where it counts clients."""
    found = [line["undefended"] for line in lines if "undefended" in line]
    return {"undefended_rounds": float(sum(found))} if found else {}


def costs(lines: Sequence[Line]) -> dict[str, float]:
    """Section V of the DIMC paper, counted: what all rounds and the gradient rounds of all starts took."""
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


def transition_accuracy(evaluated: Sequence[Line], rounds: int) -> list[float]:
    """For each session after the first, the mean accuracy of its first rounds."""
    return [
        fmean(line["accuracy"] for line in members if line["round_in_session"] < rounds)
        for session, members in by_session(evaluated).items()
        if session > 0 and members[0]["round_in_session"] < rounds
    ]


def time_to_accuracy(session: Sequence[Line], target: float) -> int:
    """T_rho, Eq. 31: the first round, from 1, that reaches the target; one more than there are, if none."""
    reached = (line["round_in_session"] + 1 for line in session if line["accuracy"] >= target)
    return int(next(reached, session[-1]["round_in_session"] + 2))


def accumulated_gain(proposed: Sequence[Line], other: Sequence[Line]) -> float:
    """G_total, Eq. 32: the proposed method's accuracy minus the other's, summed over the rounds of both."""
    theirs = {line["t"]: line["accuracy"] for line in other}
    return float(
        sum(line["accuracy"] - theirs[line["t"]] for line in proposed if line["t"] in theirs)
    )


def against(
    lines: Sequence[Line], reference: Sequence[Line], rho: float = RHO
) -> dict[str, list[float]]:
    """A run beside the reference's run: one entry per session after the first that both went through.

    `recovery_rounds` is T_rho relative to the reference's peak of that session; `accumulated_gain` is what
    the reference gained over this run.
    """
    pairs = list(_pairs(lines, reference))
    peaks = [max(line["accuracy"] for line in theirs) for _, theirs in pairs]
    return {
        "recovery_rounds": [
            float(time_to_accuracy(mine, rho * peak))
            for (mine, _), peak in zip(pairs, peaks, strict=True)
        ],
        "accumulated_gain": [accumulated_gain(theirs, mine) for mine, theirs in pairs],
    }


def by_session(lines: Sequence[Line]) -> Mapping[int, list[Any]]:
    """The evaluated lines of each session, in order."""
    sessions: dict[int, list[Any]] = {}
    for line in lines:
        if line["accuracy"] is not None:
            sessions.setdefault(line["session"], []).append(line)
    return dict(sorted(sessions.items()))


def _pairs(
    lines: Sequence[Line], reference: Sequence[Line]
) -> Iterator[tuple[list[Line], list[Line]]]:
    mine, theirs = by_session(lines), by_session(reference)
    for session in mine:
        if session > 0 and session in theirs:
            yield mine[session], theirs[session]
