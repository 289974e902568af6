"""Triggers: which changes of the population lead to a new start.

Both DIMC papers leave this to future work. A trigger compares the clients that exist now with those of the
last start, so that small changes add up, and a client that leaves and returns is no change. Hysteresis: the
comparison is always with the last start, and none follows within `rest` rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.types import Ids, Model, Nothing, Session, Tested, Vector
from fedtide.starts.archive import NO_CLIENTS, NONE, Past

Numbers = NDArray[np.float64]
MOST = 0.5  # turnover from which a gradient no longer stands for the clients that train


class Watch(NamedTuple):
    """What clients' tests of the model have shown since the last start."""

    t: int = -1  # the round of the last test; -1: none yet
    since: int = -1  # the round in which the clients of the reference were chosen
    ids: Ids = NO_CLIENTS  # these clients
    losses: Numbers = np.empty(0)  # of these clients, at the model of round t
    looks: int = 0  # comparisons of newcomers with the reference so far
    p: float = 1.0  # the last of them: the probability that it happens by chance


class Era(NamedTuple):
    """The rounds since the last start."""

    number: int = -1  # the number of starts before that one
    first: int = 0  # its first round
    clients: Ids = NO_CLIENTS  # the clients that existed at the start
    gradient: Vector = NONE  # G_s, if the start computed one
    accuracy: float = 0.0  # training accuracy in the last round
    peak: float = 0.0  # the highest training accuracy since the start
    watch: Watch = Watch()
    kept: Model | Nothing = (
        Nothing()
    )  # the model before most of the clients of `gradient` were gone

    def over(self, model: Model) -> Past:
        """The finished era as the archive keeps it; `model` is its final model.

        Model and gradient belong together: if most of the clients that computed the gradient left before the
        end of the era, the model of that time is archived.
        """
        pair = model if isinstance(self.kept, Nothing) else self.kept
        return Past(self.number, pair, self.gradient, self.accuracy, self.clients)

    def changed(self, clients: Ids, model: Model) -> Era:
        """The era when clients came or went without a start; `model` is the current one."""
        is_paired = self.gradient.numel() and isinstance(self.kept, Nothing)
        return self._replace(kept=model) if is_paired and self.turnover(clients) >= MOST else self

    def turnover(self, clients: Ids) -> float:
        """Of these clients and those of the start together, the share that is not among both."""
        common = len(np.intersect1d(self.clients, clients, assume_unique=True))
        return 1 - common / max(1, len(self.clients) + len(clients) - common)

    def after(self, accuracy: float) -> Era:
        """The era after one more round."""
        return self._replace(accuracy=accuracy, peak=max(self.peak, accuracy))


class Situation(NamedTuple):
    """What a trigger knows when it decides."""

    t: int
    era: Era
    session: Session  # the present session
    # From the last start's gradient to one that this many clients compute now, as a multiple of the distance
    # between two halves of them; that costs gradient rounds.
    distance: Callable[[int], float]
    losses: Callable[[int], Tested]  # of this many clients, at the present model; that costs a test

    @property
    def turnover(self) -> float:
        """Of the clients that exist now or existed at the last start, the share that did not at both."""
        return self.era.turnover(self.session.clients)


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
        """What is known of clients' losses in this round; by default nothing is asked of clients."""
        return change.era.watch

    def is_due(self, change: Situation) -> bool:
        """Does this round begin with a new start? Never without clients or within `rest` rounds of the last.

        A trigger that does not listen is asked when a session begins, and when `rest` rounds have passed.
        """
        waited = change.t - change.era.first - self.rest
        asked = self.listens or change.t == change.session.first or waited == 0
        return asked and waited >= 0 and len(change.session.clients) > 0 and self.fires(change)

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
    """A start once the training accuracy has fallen `by` this much below its peak since the last start."""

    listens: ClassVar[bool] = True
    by: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.by < 1, "start.trigger.by", "in (0, 1)", self.by)

    def fires(self, change: Situation) -> bool:
        return change.era.peak - change.era.accuracy >= self.by and change.turnover > 0


@dataclass(frozen=True, kw_only=True)
class Signature(Turnover):
    """A start once clients' gradient is far from that of the last start, for what chance explains.

    When `share` of the clients came or went, two halves of the present ones, or of `clients` of them, compute
    a gradient each, which costs V rounds. The distance between the two halves shows what chance does. A start
    is due if the mean of both is farther from the last start's gradient than `distance` times that.
    """

    measures: ClassVar[bool] = True
    share: float = 0.2
    distance: float = 2.0
    clients: int = 0  # 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.distance > 0, "start.trigger.distance", "positive", self.distance)
        enough = self.clients == 0 or self.clients >= 2
        require(enough, "start.trigger.clients", "0 (all) or at least 2", self.clients)

    def fires(self, change: Situation) -> bool:
        return super().fires(change) and change.distance(self.clients) >= self.distance
