"""Probes: functions from a finished round to numbers for the journal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.core.types import Cohort, Model, Plan, Session


class Finished(NamedTuple):
    """What a probe may look at."""

    t: int
    session: Session
    before: Model
    after: Model
    up: Any  # the stacked uploads
    cohort: Cohort
    plan: Plan


Probe = Callable[[Finished], Mapping[str, Any]]


def movement(done: Finished) -> Mapping[str, float]:
    """How far the global model moved in this round."""
    return {"movement": float((done.after.x - done.before.x).norm())}


def rates(done: Finished) -> Mapping[str, Any]:
    """The learning rates of each client, one per local epoch where the algorithm chooses them itself."""
    eta = getattr(done.up, "eta", done.cohort.walk.lr[:, None])
    return {"rates": eta.tolist()}


def drift(done: Finished) -> Mapping[str, Any]:
    """How far each client ended from the mean of all, where its upload tells how far it moved."""
    update = getattr(done.up, "delta", getattr(done.up, "dx", None))
    return {} if update is None else {"drift": (update - update.mean(0)).norm(dim=1).tolist()}


PROBES: dict[str, Probe] = {"rates": rates, "drift": drift, "movement": movement}


def probed(names: Sequence[str], done: Finished) -> dict[str, Any]:
    """What these probes say about a round."""
    return {key: value for name in names for key, value in PROBES[name](done).items()}
