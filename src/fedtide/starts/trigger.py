"""Triggers: when clients came or went, is a new start worth its cost?

Both DIMC papers leave this to future work. A trigger compares the clients that exist now with those of
the last start, so that small changes add up and a client that leaves and returns counts for nothing.
Hysteresis: every start sets what is compared anew, and none follows within `rest` rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.types import Ids, Model, Session, Vector
from fedtide.starts.archive import NONE, Past


class Era(NamedTuple):
    """The rounds since the last start."""

    number: int = -1  # of starts before that one
    first: int = 0
    clients: Ids = np.empty(0, dtype=np.int64)  # who existed then
    gradient: Vector = NONE  # G_s, where that start computed one
    accuracy: float = 0.0  # of training, in the last round
    peak: float = 0.0  # the highest of these

    def over(self, model: Model) -> Past:
        """What the archive may keep of it, once it is over."""
        return Past(self.number, model, self.gradient, self.accuracy)

    def after(self, accuracy: float) -> Era:
        """The era after one more round."""
        return self._replace(accuracy=accuracy, peak=max(self.peak, accuracy))


class Situation(NamedTuple):
    """What a trigger sees."""

    t: int
    era: Era
    session: Session  # who exists now
    distance: Callable[[int], float]  # from the last start's gradient to one of so many clients

    @property
    def turnover(self) -> float:
        """The share of clients that exist either now or at the last start, but not both."""
        then, now = self.era.clients, self.session.clients
        common = len(np.intersect1d(then, now, assume_unique=True))
        return 1 - common / max(1, len(then) + len(now) - common)


@dataclass(frozen=True, kw_only=True)
class Trigger(ABC):
    """Decides which changes lead to a new start."""

    measures: ClassVar[bool] = False  # does it need gradients?
    listens: ClassVar[bool] = (
        False  # can news come in any round, not only with a change of clients?
    )
    rest: int = 1  # the fewest rounds between two starts

    def __post_init__(self) -> None:
        require(self.rest >= 1, "start.trigger.rest", "at least 1", self.rest)

    def is_due(self, change: Situation) -> bool:
        """Is a new start worth its cost? Never without clients, and only where there is news."""
        waited = change.t - change.era.first - self.rest
        news = self.listens or change.t == change.session.first or waited == 0
        return news and waited >= 0 and len(change.session.clients) > 0 and self.fires(change)

    @property
    def is_steady(self) -> bool:
        """Does every session begin with a start?"""
        return False

    @abstractmethod
    def fires(self, change: Situation) -> bool:
        """The same, for a trigger that has rested."""


@dataclass(frozen=True, kw_only=True)
class Always(Trigger):
    """At every change, and whenever a session is announced."""

    @property
    def is_steady(self) -> bool:
        return self.rest == 1

    def fires(self, change: Situation) -> bool:
        return change.t == change.session.first or change.turnover > 0


@dataclass(frozen=True, kw_only=True)
class Turnover(Trigger):
    """Once this share of the clients, those of the last start and those of now, came or went."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.share <= 1, "start.trigger.share", "in (0, 1]", self.share)

    def fires(self, change: Situation) -> bool:
        return change.turnover >= self.share


@dataclass(frozen=True, kw_only=True)
class Drop(Trigger):
    """Once training accuracy fell `by` this much below its peak since the last start."""

    listens: ClassVar[bool] = True
    by: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.by < 1, "start.trigger.by", "in (0, 1)", self.by)

    def fires(self, change: Situation) -> bool:
        return change.era.peak - change.era.accuracy >= self.by and change.turnover > 0


@dataclass(frozen=True, kw_only=True)
class Signature(Turnover):
    """Once a gradient computed by a few clients lies farther than `distance` from the last start's.

    It looks, at the price of V rounds of `clients` clients, when `share` of the clients came or went.
    """

    measures: ClassVar[bool] = True
    share: float = 0.2
    distance: float = 0.7
    clients: int = 5  # 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.distance > 0, "start.trigger.distance", "positive", self.distance)
        require(self.clients >= 0, "start.trigger.clients", "zero or positive", self.clients)

    def fires(self, change: Situation) -> bool:
        return super().fires(change) and change.distance(self.clients) >= self.distance


TRIGGERS = Kinds(
    "triggers",
    Trigger,
    {
        "always": Always,
        "turnover": Turnover,
        "drop": Drop,
        "signature": Signature,
    },
)
