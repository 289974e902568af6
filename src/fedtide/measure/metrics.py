"""The metrics of a run, computed from its journal alone."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedtide.core.errors import TrainingError
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.windows import evaluated, transition_scores, windows
from fedtide.record.line import Line

Metric = float | list[float]

LAST = 5  # evaluations that `accuracy` averages
EPSILONS = ("epsilon", "simulated_epsilon")  # of real clients, and of a simulation
TUNABLE = tuple(  # metrics to choose by
    when + score
    for score in ("accuracy", "score")
    for when in ("", "best_", "mean_", "transition_")
)


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
        **of_clients(lines),
        "loss": fmean(line.loss for line in tested[-LAST:]),
        **costs(lines),
        **snapshot_share(lines),
        **undefended_rounds(lines),
        **{name: last[name] for name in EPSILONS if name in last},
        "wall_seconds": sum(sum(line["seconds"].values()) for line in lines),
    }


def over_rounds(lines: Sequence[Line], transition_rounds: int, scale: Scale) -> dict[str, Metric]:
    """What a score comes to over the rounds of a run: `accuracy`, `best_accuracy` ... or `score` ..."""
    tested = evaluated(lines, scale)
    scores = [line.score for line in tested]
    return {
        scale.metric(): fmean(scores[-LAST:]),
        scale.metric("best_"): scale.best(scores),
        scale.metric("mean_"): fmean(scores),
        scale.metric("transition_"): transition_scores(tested, transition_rounds, windows(lines)),
    }


def named(lines: Sequence[Line]) -> dict[str, Metric]:
    """Every score that the task names, the mean of the last evaluations in which it was defined."""
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line.get("metrics", {}).items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return {name: fmean(values[-LAST:]) for name, values in found.items()}


def of_clients(lines: Sequence[Line]) -> dict[str, float]:
    """What clients' own tests come to in the last evaluations: `client_mean`, `personal_worst` ...

    A proxy, where the owners of test examples are unknown, says so in its name.
    """
    found: dict[str, float] = {}
    told: list[Mapping[str, Any]] = [
        line["client_scores"] for line in lines if line.get("client_scores", {}).get("clients")
    ]
    for where in ("client", "personal"):
        views = [one if where == "client" else one.get("personal", {}) for one in told[-LAST:]]
        prefix = "proxy_" * bool(told and told[-1].get("proxy")) + where
        for name in ("mean", "worst", "spread", "gain"):
            if values := [view[name] for view in views if name in view]:
                found[f"{prefix}_{name}"] = fmean(values)
    return found


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
        **start_costs(lines),
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


def start_costs(lines: Sequence[Line]) -> dict[str, float]:
    """What clients' gradient rounds and tests cost, for all starts and for decisions against one."""
    bills = [line["start_costs"] for line in lines if "start_costs" in line]
    return {
        "start_bytes": float(sum(b.get("bytes_up", 0) + b.get("bytes_down", 0) for b in bills)),
        "start_seconds": float(sum(b.get("latency", 0) for b in bills)),
        "start_joules": float(sum(b.get("joules", 0) for b in bills)),
    }
