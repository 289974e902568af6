"""Probes: functions from a finished round to numbers for the journal."""

from collections.abc import Callable, Mapping
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
    """How far each client ended from the mean of all; every upload begins with the client's update."""
    update = done.up[0]
    return {"drift": (update - update.mean(0)).norm(dim=1).tolist()}


PROBES: dict[str, Probe] = {"rates": rates, "drift": drift, "movement": movement}
