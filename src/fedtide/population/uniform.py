"""Processes in which all clients take part equally often: all, a random cohort, or each once per cycle."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import stream
from fedtide.core.types import Ids, Session
from fedtide.population.process import Participation, rounded_down, some_of


@dataclass(frozen=True, kw_only=True)
class Full(Participation):
    """All clients that exist take part in every round."""

    def size(self, population: int) -> int:
        return population

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        return session.clients


@dataclass(frozen=True, kw_only=True)
class Sized(Participation):
    """A cohort of a known size: `clients`, or a `rate` of the clients that exist, rounded down."""

    clients: int = 0
    rate: float = 0.0

    def __post_init__(self) -> None:
        require(self.clients >= 0, "participation.clients", "at least 1", self.clients)
        require(0 <= self.rate <= 1, "participation.rate", "a share in (0, 1]", self.rate)
        if bool(self.clients) == bool(self.rate):
            raise ConfigError(
                f"participation {type(self).__name__.lower()!r} must say how many clients take part: "
                f"clients or rate. Got clients = {self.clients}, rate = {self.rate}. Set one of them."
            )

    def count(self, population: int) -> int:
        """The size of the cohort."""
        return self.clients or rounded_down(self.rate, population)

    def size(self, population: int) -> int:
        return min(self.count(population), population)

    def check(self, session: Session) -> None:
        require(
            self.clients <= len(session.clients),
            "participation.clients",
            f"at most the {len(session.clients)} clients that exist in session {session.number}",
            self.clients,
            "Lower it, or use participation.rate.",
        )


@dataclass(frozen=True, kw_only=True)
class Uniform(Sized):
    """A uniformly random cohort, drawn without replacement; each client's rate is cohort / population."""

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        return some_of(session.clients, self.count(len(session.clients)), t, seed)


@dataclass(frozen=True, kw_only=True)
class Regularised(Sized):
    """Each client once per cycle, in a new random order (Malinovsky et al., 2023, arXiv 2302.03662).

    A cycle has as many rounds as it takes until all clients have taken part; its last cohort may be smaller.
    Each client's rate is exactly one round per cycle.
    """

    def draw(self, who: Any, t: int, session: Session, seed: int) -> Ids:
        population = len(session.clients)
        size = self.count(population)
        cycle, turn = divmod(t - session.first, -(-population // size))
        order = stream(seed, "cycle", session.number, cycle).permutation(population)
        return session.clients[np.sort(order[turn * size : (turn + 1) * size])]
