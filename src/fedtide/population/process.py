"""The base of participation processes: they draw cohorts and may observe how the rounds went."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream
from fedtide.core.types import Crowd, Ids, Nothing, Round, Session

Mask = NDArray[np.bool_]
SLACK = 1e-9  # for rates that are no binary fractions: 0.29 * 100 is 28.999999999999996


@dataclass(frozen=True, kw_only=True)
class Participation(ABC):
    """Which of the clients that exist take part in each round.

    `who` is the state of the process, a NamedTuple: `start` returns the first one, `observe` the next.
    """

    @property
    def listens(self) -> bool:
        """Do later cohorts depend on what clients report about their training?"""
        return False

    @property
    def foresees(self) -> bool:
        """Can all cohorts be drawn without training? Then `observe` uses only the round's number."""
        return type(self).observe is Participation.observe

    def start(self, crowd: Crowd, seed: int) -> Any:
        """The state before the first round."""
        return Nothing()

    def check(self, session: Session) -> None:
        """Raise a `ConfigError` if this process cannot draw from the session's population."""
        return

    def check_session(self, session: Session) -> None:
        """`check` the session, unless it has no clients to draw from."""
        if len(session.clients):
            self.check(session)

    def size(self, population: int) -> int | None:
        """The size of every cohort drawn from a population of this size; None if it varies."""
        return None

    def take(self, who: Any, t: int, session: Session, seed: int) -> tuple[Ids, Mapping[str, Any]]:
        """The cohort of round t, and facts about the draw; an empty cohort if no clients exist."""
        if not len(session.clients):
            return session.clients, {}
        return self.draw(who, t, session, seed), self.facts(who, t, session, seed)

    @abstractmethod
    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        """The cohort of round t: ids in increasing order, without repetition."""

    def facts(self, who: Any, t: int, session: Session, seed: int) -> Mapping[str, Any]:
        """Facts about the draw of round t, for the journal."""
        return {}

    def observe(self, who: Any, done: Round) -> Any:
        """The state after a finished round."""
        return who


@dataclass(frozen=True, kw_only=True)
class Available(Participation):
    """Clients are available or not; the server draws `clients` of the available ones uniformly at random.

    If fewer are available, all of them take part; 0 means all that are available. A round without available
    clients has an empty cohort and leaves the model unchanged.
    """

    clients: int = 0

    def __post_init__(self) -> None:
        require(self.clients >= 0, "participation.clients", "zero or positive", self.clients)

    @abstractmethod
    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        """Which of the session's clients are available in round t."""

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        there = session.clients[self.present(who, t, session, seed)]
        return some_of(there, self.clients or len(there), t, seed)

    def facts(self, who: Any, t: int, session: Session, seed: int) -> Mapping[str, Any]:
        return {"available": int(self.present(who, t, session, seed).sum())}


def some_of(ids: Ids, size: int, t: int, seed: int) -> Ids:
    """A uniformly random cohort of this size without replacement, or all clients if there are fewer."""
    if size >= len(ids):
        return ids
    # Without shuffling numpy needs time and memory for the cohort only, not for the population.
    picked = stream(seed, "cohort", t).choice(len(ids), size, replace=False, shuffle=False)
    return ids[np.sort(picked)]


def rounded_up(rate: float, population: int) -> int:
    """The size of the smallest cohort that is at least a `rate` of the population."""
    return max(1, ceil(rate * population - SLACK))


def rounded_down(rate: float, population: int) -> int:
    """The size of the largest cohort that is at most a `rate` of the population, but at least 1."""
    return max(1, int(rate * population + SLACK))
