"""Who takes part in a round: processes that draw a cohort and, if they listen, observe what came of it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import stream
from fedtide.core.types import Crowd, Ids, Nothing, Round, Session


@dataclass(frozen=True, kw_only=True)
class Participation(ABC):
    """A process over rounds; its state, if it has one, is passed and returned."""

    def start(self, crowd: Crowd, seed: int) -> Any:
        """The state before the first round."""
        return Nothing()

    def check(self, session: Session) -> None:
        """Raise an error if this process cannot serve the session's population."""
        return

    @abstractmethod
    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        """The clients of round t, in increasing order, never one twice."""

    def observe(self, who: Any, done: Round) -> Any:
        """The state after a finished round."""
        return who


@dataclass(frozen=True, kw_only=True)
class Full(Participation):
    """Everybody who exists."""

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        return session.clients


@dataclass(frozen=True, kw_only=True)
class Uniform(Participation):
    """A uniformly random cohort without replacement: `clients` of them, or a `rate` of those who exist."""

    clients: int = 0
    rate: float = 0.0

    def __post_init__(self) -> None:
        require(self.clients >= 0, "participation.clients", "at least 1", self.clients)
        require(0 <= self.rate <= 1, "participation.rate", "a share in (0, 1]", self.rate)
        if bool(self.clients) == bool(self.rate):
            raise ConfigError(
                "participation 'uniform' must say how many clients take part: clients or rate. "
                f"Got clients = {self.clients}, rate = {self.rate}. Set one of them."
            )

    def count(self, population: int) -> int:
        """The size of the cohort."""
        return self.clients or max(1, int(self.rate * population))

    def check(self, session: Session) -> None:
        require(
            self.clients <= len(session.clients),
            "participation.clients",
            f"at most the {len(session.clients)} clients that exist in session {session.number}",
            self.clients,
            "Lower it, or use participation.rate.",
        )

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        size = self.count(len(session.clients))
        rng = stream(seed, "cohort", t)
        # Without shuffling numpy needs time and memory for the cohort only, not for the population.
        picked = rng.choice(len(session.clients), size, replace=False, shuffle=False)
        return session.clients[np.sort(picked)]


PARTICIPATION: dict[str, type[Participation]] = {"full": Full, "uniform": Uniform}
