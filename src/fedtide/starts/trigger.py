"""Triggers: which changes of the population lead to a new start.

Both DIMC papers leave this to future work. A trigger compares the clients that exist now with those of the
last start, so that small changes add up, and a client that leaves and returns is no change. Hysteresis: the
comparison is always with the last start, and none follows within `rest` rounds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.credit import fall
from fedtide.core.errors import require
from fedtide.core.types import Ids, Model, Nothing, Session, Tested, Vector
from fedtide.starts.archive import NO_CLIENTS, NONE, Past

Numbers = NDArray[np.float64]
MOST = 0.5  # turnover from which a gradient no longer stands for the clients that train


class Watch(NamedTuple):
    """What a trigger has learnt from clients since the last start."""

    t: int = -1  # the round in which it last asked clients; -1: never
    since: int = -1  # the round in which the clients of the reference were chosen
    ids: Ids = NO_CLIENTS  # these clients
    losses: Numbers = np.empty(0)  # of these clients, at the model of round t
    looks: int = 0  # comparisons so far
    result: float = 1.0  # of the last comparison


EARLIER = -1


class Era(NamedTuple):
    """The rounds since the last start."""

    number: int = -1  # the number of starts before that one
    first: int = (
        0  # its first round; EARLIER if it belongs to an earlier run, which has stored its model
    )
    clients: Ids = NO_CLIENTS  # the clients that existed at the start
    gradient: Vector = NONE  # G_s, if the start computed one
    credit: float = 0.0  # training accuracy in the last round, or other credit
    peak: float | None = None  # the highest credit since the start; None before the first round
    watch: Watch = Watch()
    kept: Model | Nothing = (
        Nothing()
    )  # the model before most of the clients of `gradient` were gone

    @property
    def is_earlier(self) -> bool:
        """Does the era belong to an earlier run?"""
        return self.first == EARLIER

    def over(self, model: Model) -> Past:
        """The finished era as the archive keeps it; `model` is its final model.

        Model and gradient belong together: if most of the clients that computed the gradient left before the
        end of the era, the model of that time is archived.
        """
        pair = model if isinstance(self.kept, Nothing) else self.kept
        return Past(self.number, pair, self.gradient, self.credit, self.clients)

    def changed(self, clients: Ids, model: Model) -> Era:
        """The era when clients came or went without a start; `model` is the current one."""
        is_paired = self.gradient.numel() and isinstance(self.kept, Nothing)
        are_gone = is_paired and turnover(self.clients, clients) >= MOST
        return self._replace(kept=model) if are_gone else self

    def after(self, credit: float) -> Era:
        """The era after one more round."""
        peak = credit if self.peak is None else max(self.peak, credit)
        return self._replace(credit=credit, peak=peak)


class Situation(NamedTuple):
    """What a trigger knows when it decides."""

    t: int
    era: Era
    session: Session  # the present session
    # By how much the gradient of this many clients agrees less with the last start's than chance explains;
    # that costs gradient rounds.
    drift: Callable[[int], float]
    losses: Callable[[int], Tested]  # of this many clients, at the present model; that costs a test

    @property
    def turnover(self) -> float:
        """Of the clients that exist now or existed at the last start, the share that did not at both."""
        return turnover(self.era.clients, self.session.clients)


def turnover(then: Ids, now: Ids) -> float:
    """Of the clients in either set, the share that is not in both."""
    common = len(np.intersect1d(then, now, assume_unique=True))
    return 1 - common / max(1, len(then) + len(now) - common)


@dataclass(frozen=True, kw_only=True)
class Trigger(ABC):
    """Decides which changes of the population lead to a new start."""

    measures: ClassVar[bool] = False  # does it need gradients?
    tests: ClassVar[bool] = False  # do clients test models for it?
    listens: ClassVar[bool] = False  # may it fire in any round, not only when a session begins?
    rest: int = 1  # the least number of rounds between two starts

    def __post_init__(self) -> None:
        require(self.rest >= 1, "start.trigger.rest", "at least 1", self.rest)

    def settled(self, as_sessions: bool, may_test: bool) -> Trigger:
        """The trigger that is used, for a population that is given as sessions or not."""
        return self

    def watch(self, change: Situation) -> Watch:
        """What is known from clients in this round; by default nothing is asked of them."""
        return change.era.watch

    def facts(self, watch: Watch) -> Mapping[str, float]:
        """What the journal should say about a round in which clients were asked."""
        return {}

    def is_due(self, change: Situation) -> bool:
        """Does this round begin with a new start? Never without clients or within `rest` rounds of the last.

        A trigger that does not listen is asked when a session begins, and when `rest` rounds have passed.
        """
        waited = change.t - change.era.first - self.rest
        asked = self.listens or change.t == change.session.first or waited == 0
        return asked and waited >= 0 and len(change.session.clients) > 0 and self.fires(change)

    def reason(self, change: Situation) -> str:
        """Why a start is due, in words, for the journal."""
        if not change.turnover:
            return "a session began with the same clients"
        return f"{change.turnover:.0%} of the clients came or went since the last start"

    @property
    def is_steady(self) -> bool:
        """Does every session begin with a start?"""
        return False

    @abstractmethod
    def fires(self, change: Situation) -> bool:
        """Is the change large enough for a new start?"""


@dataclass(frozen=True, kw_only=True)
class Always(Trigger):
    """A start at every change of the population, and at the beginning of every session."""

    @property
    def is_steady(self) -> bool:
        return self.rest == 1

    def fires(self, change: Situation) -> bool:
        return change.t == change.session.first or change.turnover > 0


@dataclass(frozen=True, kw_only=True)
class Turnover(Trigger):
    """A start once `share` of the clients, those of the last start and the present ones, came or went."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.share <= 1, "start.trigger.share", "in (0, 1]", self.share)

    def fires(self, change: Situation) -> bool:
        return change.turnover >= self.share


@dataclass(frozen=True, kw_only=True)
class Drop(Trigger):
    """A start once the training accuracy has fallen `by` this much below its peak since the last start.

    In tasks without right and wrong answers: once the training loss is higher than its least by this share.
    """

    listens: ClassVar[bool] = True
    by: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.by < 1, "start.trigger.by", "in (0, 1)", self.by)

    def fires(self, change: Situation) -> bool:
        peak, now = change.era.peak, change.era.credit
        return peak is not None and fall(peak, now) >= self.by and change.turnover > 0

    def reason(self, change: Situation) -> str:
        peak, now = change.era.peak or 0.0, change.era.credit
        if 0 <= peak <= 1:
            return f"clients came or went, and training accuracy fell from {peak:.1%} to {now:.1%}"
        return f"clients came or went, and the training loss rose from {-peak:.3g} to {-now:.3g}"


@dataclass(frozen=True, kw_only=True)
class Signature(Trigger):
    """A start once clients' gradient agrees less with that of the last start than chance explains.

    When `share` of the clients came or went since the last look, two halves of the present ones, or of
    `clients` of them, compute a gradient each, which costs V rounds. The cosine r between the two shows what
    chance does: if the clients were still alike, the cosine between the mean of both and the last start's
    gradient would be about 2 r / (1 + r) (Spearman and Brown's formula). A start is due if it is lower than
    that `by` so much.
    """

    measures: ClassVar[bool] = True
    by: float = 0.55
    share: float = 0.2
    clients: int = 0  # 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.by < 2, "start.trigger.by", "in (0, 2)", self.by)
        require(0 < self.share <= 1, "start.trigger.share", "in (0, 1]", self.share)
        enough = self.clients == 0 or self.clients >= 2
        require(enough, "start.trigger.clients", "0 (all) or at least 2", self.clients)

    def watch(self, change: Situation) -> Watch:
        before, present = change.era.watch, np.sort(change.session.clients)
        reference = change.era.clients if before.t < 0 else before.ids
        if not len(present) or turnover(reference, present) < self.share:
            return before
        t, looks = change.t, before.looks + 1
        return Watch(t, t, present, looks=looks, result=change.drift(self.clients))

    def fires(self, change: Situation) -> bool:
        return change.era.watch.t == change.t and change.era.watch.result >= self.by

    def reason(self, change: Situation) -> str:
        fall = change.era.watch.result
        return (
            f"the gradient's cosine with the last start's is {fall:.2f} lower than chance explains"
        )

    def facts(self, watch: Watch) -> Mapping[str, float]:
        is_number = math.isfinite(watch.result)  # not in the pilot, where nothing is compared
        return {"signature_fall": watch.result} if is_number else {}
