"""Probes: functions from a finished round to numbers for the journal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fedtide.core.types import Cohort, Model, Plan, Session


class Finished(NamedTuple):
    """What a probe may look at."""

    t: int
    session: Session
    before: Model
    after: Model
    up: Any  # the stacked uploads; their weighted sum, if no probe looks at single ones
    cohort: Cohort
    plan: Plan
    gradients: Callable[
        [int], Tensor
    ]  # [U, dim]: of each client's loss at `before` on its store of a round
    algorithm: Any = None


CLOSE = 1e-5  # a rate this near to a limit lies on it: rates are float32

Probe = Callable[[Finished], Mapping[str, Any]]


def movement(done: Finished) -> Mapping[str, float]:
    """How far the global model moved in this round."""
    return {"movement": float((done.after.x - done.before.x).norm())}


def rates(done: Finished) -> Mapping[str, Any]:
    """The learning rates of each client, one per local epoch where the algorithm chooses them itself.

    Where it has `limits`, also the share of rates that lie on the lower and on the upper one.
    """
    eta = getattr(done.up, "eta", done.cohort.walk.lr[:, None])
    noted = {"rates": eta.tolist()}
    if limits := getattr(done.algorithm, "limits", None):
        low, high = limits(float(done.cohort.walk.lr[0]))
        shares = (eta <= low * (1 + CLOSE), eta >= high * (1 - CLOSE))
        noted |= {
            key: float(at.to(eta).mean())
            for key, at in zip(("at_floor", "at_cap"), shares, strict=True)
        }
    return noted


def drift(done: Finished) -> Mapping[str, Any]:
    """How far each client ended from the mean of all, where its upload tells how far it moved."""
    update = getattr(done.up, "delta", getattr(done.up, "dx", None))
    return {} if update is None else {"drift": (update - update.mean(0)).norm(dim=1).tolist()}


def shift(done: Finished) -> Mapping[str, Any]:
    """How far each client's data moved since the round before: Phi of OSAFL, Definition 1 (Eq. 23), at w^t.

    ||grad f(w | D^(t-1)) - grad f(w | D^t)||^2, zero in the first round; two passes over all stores.
    """
    if done.t == 0:
        return {"shift": [0.0] * len(done.cohort.ids)}
    difference = done.gradients(done.t - 1) - done.gradients(done.t)
    return {"shift": difference.square().sum(1).tolist()}


PROBES: dict[str, Probe] = {"rates": rates, "drift": drift, "movement": movement, "shift": shift}


def probed(names: Sequence[str], done: Finished) -> dict[str, Any]:
    """What these probes say about a round."""
    return {key: value for name in names for key, value in PROBES[name](done).items()}
