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


PROBES: dict[str, Probe] = {"movement": movement}
