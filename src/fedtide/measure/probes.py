"""Probes: numbers about a finished round, for its line of the journal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from fedtide.core.errors import AuthorError
from fedtide.core.kinds import Kinds
from fedtide.core.types import Cohort, Model, Plan, Session

CLOSE = 1e-5  # a rate this near to a limit lies on it: rates are float32
Needs = Literal["nothing", "sum", "uploads", "gradients"]


class Finished(NamedTuple):
    """What a probe may look at."""

    t: int
    session: Session
    before: Model
    after: Model
    up: Any  # the stacked uploads; their weighted sum where no probe needs single ones
    cohort: Cohort
    plan: Plan
    gradients: Callable[[int], Tensor]  # [U, dim]: at `before`, on what each client held in a round
    algorithm: Any = None


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """Computes numbers from a finished round.

    `needs` says what it looks at: single "uploads", [U, ...] each; the "sum" of the uploads, or either form;
    "gradients" of clients, which cost a pass over their examples; or "nothing" of these.
    """

    needs: ClassVar[Needs] = "nothing"

    @classmethod
    def adopt(cls, found: Any, settings: Mapping[str, Any]) -> Probe | None:
        """Make a probe from a user's function of a finished round; None for anything else."""
        is_function = callable(found) and not isinstance(found, type)
        return FunctionProbe(function=found) if is_function and not settings else None

    @property
    def name(self) -> str:
        """The name of the code that measures, for messages."""
        return f"{type(self).__name__}.measure"

    @abstractmethod
    def measure(self, done: Finished) -> Mapping[str, Any]:
        """Entries for the journal, by key."""


@dataclass(frozen=True, kw_only=True)
class FunctionProbe(Probe):
    """A function of a finished round as a probe; it may say what it `needs` in an attribute."""

    function: Callable[[Finished], Mapping[str, Any]]

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        needs: Needs = getattr(self.function, "needs", "uploads")
        return needs

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def measure(self, done: Finished) -> Mapping[str, Any]:
        return self.function(done)


@dataclass(frozen=True, kw_only=True)
class MovementProbe(Probe):
    """How far the global model moved in the round."""

    def measure(self, done: Finished) -> Mapping[str, float]:
        return {"movement": float((done.after.x - done.before.x).norm())}


@dataclass(frozen=True, kw_only=True)
class RatesProbe(Probe):
    """The learning rates of each client, one per local epoch where the algorithm chooses them itself.

    Where the algorithm has `limits`, also the share of rates on the lower and on the upper one.
    """

    needs = "uploads"

    def measure(self, done: Finished) -> Mapping[str, Any]:
        eta = getattr(done.up, "eta", done.cohort.walk.lr[:, None])
        noted = {"rates": eta.tolist()}
        if limits := getattr(done.algorithm, "limits", None):
            low, high = limits(float(done.cohort.walk.lr[0]))
            noted["at_floor"] = float((eta <= low * (1 + CLOSE)).to(eta).mean())
            noted["at_cap"] = float((eta >= high * (1 - CLOSE)).to(eta).mean())
        return noted


@dataclass(frozen=True, kw_only=True)
class DriftProbe(Probe):
    """How far each client's model ended from the mean of all, where uploads tell how far clients moved."""

    needs = "uploads"

    def measure(self, done: Finished) -> Mapping[str, Any]:
        update = getattr(done.up, "delta", getattr(done.up, "dx", None))
        return {} if update is None else {"drift": (update - update.mean(0)).norm(dim=1).tolist()}


@dataclass(frozen=True, kw_only=True)
class ShiftProbe(Probe):
    """How far each client's data moved since the round before: Phi of OSAFL, Definition 1 (Eq. 23), at w^t.

    ||grad f(w | D^(t-1)) - grad f(w | D^t)||^2, zero in the first round; two passes over all stores.
    """

    needs = "gradients"

    def measure(self, done: Finished) -> Mapping[str, Any]:
        if done.t == 0:
            return {"shift": [0.0] * len(done.cohort.ids)}
        difference = done.gradients(done.t - 1) - done.gradients(done.t)
        return {"shift": difference.square().sum(1).tolist()}


PROBES = Kinds(
    "probes",
    Probe,
    {
        "rates": RatesProbe,
        "drift": DriftProbe,
        "movement": MovementProbe,
        "shift": ShiftProbe,
    },
)


def measured(probes: Sequence[Probe], done: Finished) -> dict[str, Any]:
    """What these probes say about a round."""
    return {key: value for probe in probes for key, value in _entries(probe, done).items()}


def _entries(probe: Probe, done: Finished) -> Mapping[str, Any]:
    found = probe.measure(done)
    if not isinstance(found, Mapping):
        raise AuthorError(
            f"{probe.name} must return entries for the journal, a dict from keys to values. "
            f"Got {type(found).__name__}. Return for example {{'key': 1.0}}."
        )
    return found
