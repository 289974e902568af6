"""The metrics of a run, computed from its journal alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.core.errors import TrainingError
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.line import Line

Metric = float | list[float]

LAST = 5  # evaluations that `accuracy` averages
EPSILONS = ("epsilon", "simulated_epsilon")  # of real clients, and of a simulation
TUNABLE = tuple(  # metrics to choose by
    when + score
    for score in ("accuracy", "score")
    for when in ("", "best_", "mean_", "transition_")
)
RHO = 0.95  # a session has recovered at this share of the reference's peak


class EvaluatedLine(NamedTuple):
    """What is read here of a round in which the model was tested."""

    t: int
    session: int
    round_in_session: int
    score: float
    loss: float


def metrics(
    lines: Sequence[Line], transition_rounds: int = 10, scale: Scale = ACCURACY
) -> dict[str, Metric]:
    """The metrics of a run by name; accuracies are fractions between 0 and 1."""
    tested = evaluated(lines, scale)
    if not tested:
        raise TrainingError(
            "evaluation.every must be small enough that the model is tested while clients exist. Got a "
            f"run of {len(lines)} rounds without a test. Set evaluation.every = 1."
        )
    last: Mapping[str, Any] = lines[-1]
    judged = over_rounds(lines, transition_rounds, scale)
    if not scale.is_accuracy and evaluated(
        lines
    ):  # of a classifier that is judged by another score
        judged |= over_rounds(lines, transition_rounds, ACCURACY)
    return {
        **judged,
        **named(lines),
        "loss": fmean(line.loss for line in tested[-LAST:]),
        **costs(lines),
        **snapshot_share(lines),
        **undefended_rounds(lines),
        **{name: last[name] for name in EPSILONS if name in last},
        "wall_seconds": sum(sum(line["seconds"].values()) for line in lines),
    }


def over_rounds(lines: Sequence[Line], transition_rounds: int, scale: Scale) -> dict[str, Metric]:
    """What a score comes to over the rounds of a run: `accuracy`, `best_accuracy` ... or `score` ..."""
    scores = [line.score for line in evaluated(lines, scale)]
    return {
        scale.metric(): fmean(scores[-LAST:]),
        scale.metric("best_"): scale.best(scores),
        scale.metric("mean_"): fmean(scores),
        scale.metric("transition_"): transition_scores(lines, transition_rounds, scale),
    }


def named(lines: Sequence[Line]) -> dict[str, Metric]:
    """Every score that the task names, the mean of the last evaluations in which it was defined."""
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line.get("metrics", {}).items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return {name: fmean(values[-LAST:]) for name, values in found.items()}


def evaluated(lines: Iterable[Line], scale: Scale = ACCURACY) -> list[EvaluatedLine]:
    """The rounds in which the model was tested."""
    return [
        EvaluatedLine(line["t"], line["session"], line["round_in_session"], score, loss)
        for line in lines
        if (score := scale.value(line)) is not None and (loss := line["loss"]) is not None
    ]


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


def transition_scores(lines: Sequence[Line], rounds: int, scale: Scale = ACCURACY) -> list[float]:
    """For each session after the first, the mean score of its first rounds."""
    return [
        fmean(line.score for line in members if line.round_in_session < rounds)
        for session, members in by_session(lines, scale).items()
        if session > 0 and members[0].round_in_session < rounds
    ]


def time_to_reach(session: Sequence[EvaluatedLine], target: float, scale: Scale = ACCURACY) -> int:
    """T_rho, Eq. 31: the first round, from 1, to reach the target; one more than the last if none does."""
    reached = (
        line.round_in_session + 1 for line in session if scale.is_reached(line.score, target)
    )
    return next(reached, session[-1].round_in_session + 2)


def accumulated_gain(
    proposed: Sequence[EvaluatedLine], other: Sequence[EvaluatedLine], scale: Scale = ACCURACY
) -> float:
    """G_total, Eq. 32: by how much the proposed method's score is better, summed over rounds both tested."""
    known = {line.t: line.score for line in other}
    return float(
        sum([scale.sign * (line.score - known[line.t]) for line in proposed if line.t in known])
    )


def against(
    lines: Sequence[Line],
    reference: Sequence[Line],
    rho: float = RHO,
    scale: Scale = ACCURACY,
) -> dict[str, list[float]]:
    """Compare a run with the reference's run: one entry per session after the first that both have.

    `recovery_rounds` is T_rho: the rounds until the share `rho` of the way is made that the reference makes
    in that session, from the score of a model that has learnt nothing (0 for accuracy, as in Eq. 31) to its
    best one. `accumulated_gain` is what the reference gained over this run.
    """
    pairs = list(_common_sessions(lines, reference, scale))
    return {
        "recovery_rounds": [
            float(time_to_reach(own, _target(reference, other, rho, scale), scale))
            for own, other in pairs
        ],
        "accumulated_gain": [accumulated_gain(other, own, scale) for own, other in pairs],
    }


def _target(
    lines: Sequence[Line], session: Sequence[EvaluatedLine], rho: float, scale: Scale
) -> float:
    floor = scale.floor([line for line in lines if line["t"] == session[0].t])
    return floor + rho * (scale.best(line.score for line in session) - floor)


def by_session(lines: Sequence[Line], scale: Scale = ACCURACY) -> Mapping[int, list[EvaluatedLine]]:
    """The evaluated lines of each session, in order."""
    sessions: dict[int, list[EvaluatedLine]] = {}
    for line in evaluated(lines, scale):
        sessions.setdefault(line.session, []).append(line)
    return dict(sorted(sessions.items()))


def _common_sessions(
    lines: Sequence[Line], reference: Sequence[Line], scale: Scale
) -> Iterator[tuple[list[EvaluatedLine], list[EvaluatedLine]]]:
    own, other = by_session(lines, scale), by_session(reference, scale)
    for session in own:
        if session > 0 and session in other:
            yield own[session], other[session]
