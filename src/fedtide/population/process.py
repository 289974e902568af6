"""What every participation process is: it draws cohorts and, if it listens, observes what came of them."""

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
SLACK = 1e-9  # a rate of 0.1 times 30 clients is 3, whatever binary fractions say


@dataclass(frozen=True, kw_only=True)
class Participation(ABC):
    """A process over rounds; its state, if it has one, is passed and returned."""

    @property
    def listens(self) -> bool:
        """Does what clients say about their training decide who takes part?"""
        return False

    @property
    def foresees(self) -> bool:
        """Can all cohorts be drawn without training? Then `observe` needs nothing but the round's number."""
        return type(self).observe is Participation.observe

    def start(self, crowd: Crowd, seed: int) -> Any:
        """The state before the first round."""
        return Nothing()

    def check(self, session: Session) -> None:
        """Raise an error if this process cannot serve the session's population."""
        return

    def check_session(self, session: Session) -> None:
        """`check`, unless the session has no clients: nobody need be served."""
        if len(session.clients):
            self.check(session)

    def size(self, population: int) -> int | None:
        """How many clients of so many take part in a round, where that is known beforehand."""
        return None

    def take(self, who: Any, t: int, session: Session, seed: int) -> tuple[Ids, Mapping[str, Any]]:
        """The clients of round t, and facts about the draw; nobody where nobody exists."""
        if not len(session.clients):
            return session.clients, {}
        return self.draw(who, t, session, seed), self.facts(who, t, session, seed)

    @abstractmethod
    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        """The clients of round t, in increasing order, never one twice."""

    def facts(self, who: Any, t: int, session: Session, seed: int) -> Mapping[str, Any]:
        """What the journal should know about the draw of round t."""
        return {}

    def observe(self, who: Any, done: Round) -> Any:
        """The state after a finished round."""
        return who


@dataclass(frozen=True, kw_only=True)
class Available(Participation):
    """Clients are there or not; the server takes `clients` of those who are, uniformly at random.

    Where fewer are there, all of them take part; 0 takes everybody who is there. A round in which
    nobody is there has no cohort and leaves the model as it is.
    """

    clients: int = 0

    def __post_init__(self) -> None:
        require(self.clients >= 0, "participation.clients", "zero or positive", self.clients)

    @abstractmethod
    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        """Which of the session's clients are there in round t."""

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        there = session.clients[self.present(who, t, session, seed)]
        return some_of(there, self.clients or len(there), t, seed)

    def facts(self, who: Any, t: int, session: Session, seed: int) -> Mapping[str, Any]:
        return {"available": int(self.present(who, t, session, seed).sum())}


def some_of(ids: Ids, size: int, t: int, seed: int) -> Ids:
    """A uniformly random cohort of this size without replacement, or all if there are not so many."""
    if size >= len(ids):
        return ids
    # Without shuffling numpy needs time and memory for the cohort only, not for the population.
    picked = stream(seed, "cohort", t).choice(len(ids), size, replace=False, shuffle=False)
    return ids[np.sort(picked)]


def rounded_up(rate: float, population: int) -> int:
    """The smallest cohort that is at least a `rate` of the population."""
    return max(1, ceil(rate * population - SLACK))


def rounded_down(rate: float, population: int) -> int:
    """The largest cohort that is at most a `rate` of the population, but somebody."""
    return max(1, int(rate * population + SLACK))
