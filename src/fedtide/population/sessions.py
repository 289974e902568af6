"""Arrivals and departures: which clients exist in which rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fedtide.core.errors import ConfigError, require
from fedtide.core.types import Group, Ids, Session


@dataclass(frozen=True, kw_only=True)
class Population(ABC):
    """Which clients exist in which rounds, as a sequence of sessions."""

    announced: ClassVar[bool] = True  # are all sessions known before the run?
    as_sessions: ClassVar[bool] = (
        True  # given as sessions, or do single clients come and go at any time?
    )
    rounds: int = 10  # rounds per session

    def __post_init__(self) -> None:
        require(self.rounds >= 1, "population.rounds", "at least 1", self.rounds)

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rounds of the whole run."""

    @abstractmethod
    def groups(self, classes: int) -> list[Group]:
        """All clients that ever exist, in groups, and the labels of each group's data.

        The ids of the first group's clients begin at 0, those of the next group follow, and so on.
        """

    @abstractmethod
    def at(self, t: int, seed: int = 0) -> Session:
        """The session of round t; populations that are drawn at random depend on the seed."""

    def opened(self) -> Population:
        """The population of one run; `Live` returns a new object that records what it observes."""
        return self


@lru_cache(maxsize=8)
def numbered(first: int, count: int) -> Ids:
    """The ids of `count` clients from `first` on; cached, because a large population takes time to build."""
    return np.arange(first, first + count)


@dataclass(frozen=True, kw_only=True)
class Fixed(Population):
    """The same clients from the first round to the last: one session."""

    clients: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1", self.clients)

    @property
    def length(self) -> int:
        return self.rounds

    def groups(self, classes: int) -> list[Group]:
        return [Group(self.clients)]

    def at(self, t: int, seed: int = 0) -> Session:
        return Session(0, numbered(0, self.clients), 0, self.rounds)


@dataclass(frozen=True, kw_only=True)
class Alternating(Population):
    """Two groups of clients with different labels take turns, one session each.

    The label sets are those of the DIMC paper (Chang et al., journal version, section VI): without overlap
    the first half of the labels and the second half; with overlap o two sets of floor(L / (2 - o))
    consecutive labels of which floor(o size) are common to both. Examples of a common label belong to both
    groups.
    """

    clients: int = 100  # per group
    sessions: int = 6
    labels_overlap: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1 per group", self.clients)
        require(self.sessions >= 1, "population.sessions", "at least 1", self.sessions)
        require(
            0 <= self.labels_overlap < 1,
            "population.labels_overlap",
            "a share in [0, 1)",
            self.labels_overlap,
        )

    @property
    def length(self) -> int:
        return self.rounds * self.sessions

    def groups(self, classes: int) -> list[Group]:
        if classes < 2:
            raise ConfigError(
                f"population 'alternating' must have data with at least 2 labels. Got {classes}. "
                "Use population.kind = 'fixed'."
            )
        size = int(classes / (2 - self.labels_overlap))
        shared = int(size * self.labels_overlap)
        first, second = range(classes // 2), range(classes // 2, classes)
        if shared:
            first, second = range(size), range(size - shared, 2 * size - shared)
        return [Group(self.clients, tuple(first)), Group(self.clients, tuple(second))]

    def at(self, t: int, seed: int = 0) -> Session:
        index = t // self.rounds
        begin = self.clients * (index % 2)
        clients = numbered(begin, self.clients)
        return Session(index, clients, index * self.rounds, self.rounds)


@dataclass(frozen=True, kw_only=True)
class Pattern(Population):
    """The clients of each session are listed, as in Tables 3 and 4 of the DIMC paper's conference version."""

    clients: int = 10
    sessions: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1", self.clients)
        if not self.sessions:
            raise ConfigError(
                "population.sessions must list the clients of each session. Got an empty list. "
                "Write for example sessions = [[0, 1, 2], [3, 4]]."
            )
        for number, members in enumerate(self.sessions):
            where = f"population.sessions[{number}]"
            require(len(members) > 0, where, "a list of at least one client", list(members))
            unique = len(set(members)) == len(members)
            require(unique, where, "a list without repeated clients", list(members))
            known = all(0 <= client < self.clients for client in members)
            require(known, where, f"clients from 0 to {self.clients - 1}", list(members))

    @property
    def length(self) -> int:
        return self.rounds * len(self.sessions)

    def groups(self, classes: int) -> list[Group]:
        return [Group(self.clients)]

    def at(self, t: int, seed: int = 0) -> Session:
        index = t // self.rounds
        clients = np.array(sorted(self.sessions[index]), dtype=np.int64)
        return Session(index, clients, index * self.rounds, self.rounds)
