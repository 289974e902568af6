"""Clients that come and go one by one: a session begins in each round in which a client arrives or leaves."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import stream
from fedtide.core.types import Group, Session
from fedtide.population.description import joined
from fedtide.population.recording import MOST, Form, Recording, read
from fedtide.population.sessions import Alternating, Population
from fedtide.population.visits import Visits


@dataclass(frozen=True, kw_only=True)
class Arrivals(Population):
    """A population of visits; `rounds` is the number of all rounds.

    A session lasts until the next client arrives or leaves. Rounds without any client form a session, too: no
    client trains, the model is not tested and stays as it is.
    """

    as_sessions: ClassVar[bool] = False

    @property
    def length(self) -> int:
        return self.rounds

    @abstractmethod
    def visits(self, seed: int) -> Visits:
        """All visits of all clients."""

    def at(self, t: int, seed: int = 0) -> Session:
        _, firsts = _timeline(self, seed)
        return _session(self, seed, bisect_right(firsts, t) - 1)


@lru_cache(maxsize=4)
def _timeline(population: Arrivals, seed: int) -> tuple[Visits, list[int]]:
    """All visits, and the rounds in which sessions begin."""
    visits = population.visits(seed)
    changes = np.unique(np.concatenate([[0], visits.arrive, visits.leave]))
    return visits, changes[changes < population.rounds].tolist()


@lru_cache(maxsize=4)
def _session(population: Arrivals, seed: int, number: int) -> Session:
    """One session; cached, so that it is computed in its first round only."""
    visits, firsts = _timeline(population, seed)
    first, end = (*firsts, population.rounds)[number : number + 2]
    here = (visits.arrive <= first) & (visits.leave > first)
    return Session(number, np.unique(visits.client[here]), first, end - first)


@dataclass(frozen=True, kw_only=True)
class Poisson(Arrivals):
    """Arrivals are a Poisson process; stays are exponential or heavy-tailed (Pareto), at least one round.

    During the first `opening` rounds `present` clients exist. Then present / stay clients arrive per round,
    alone or in parties, and stay for `stay` rounds on average, so that `present` is the expected number of
    clients in every round (Little's law), as long as enough absent clients are left to arrive. With a `tide`,
    two groups with the labels of kind "alternating" take turns: every `tide` rounds all clients leave and
    `present` clients of the other group arrive.
    """

    clients: int = 100  # clients that ever exist; with a tide, in each group
    present: int = 20
    stay: float = 20.0  # mean number of rounds, at least 1
    party: int = 1  # number of clients that arrive and leave together
    law: Literal["exponential", "pareto"] = "exponential"
    shape: float = 1.5  # of the Pareto distribution: the smaller, the heavier the tail
    opening: int = 10
    tide: int = 0  # 0: one group with all labels
    labels_overlap: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1", self.clients)
        known = f"from 1 to the {self.clients} clients of a group"
        require(1 <= self.present <= self.clients, "population.present", known, self.present)
        known = f"from 1 to the {self.present} clients present"
        require(1 <= self.party <= self.present, "population.party", known, self.party)
        require(self.stay >= 1, "population.stay", "at least 1 round", self.stay)
        require(self.shape > 1, "population.shape", "above 1", self.shape)
        require(self.opening >= 1, "population.opening", "at least 1", self.opening)
        require(self.tide >= 0, "population.tide", "zero or positive", self.tide)
        self._alternating()

    def groups(self, classes: int) -> list[Group]:
        return self._alternating().groups(classes) if self.tide else [Group(self.clients)]

    def visits(self, seed: int) -> Visits:
        rng = stream(seed, "arrivals")
        absent = [list(range(g * self.clients, (g + 1) * self.clients)) for g in (0, 1)]
        leaving: list[tuple[int, int]] = []
        rows = []
        for t in range(self.rounds):
            while leaving and leaving[0][0] <= t:
                client = heappop(leaving)[1]
                absent[client // self.clients].append(client)
            settled = self._is_turn(
                t
            )  # then stays are drawn as if they had begun in earlier rounds
            for size in self._settled() if settled else self._parties(t, rng):
                stay = self._remaining(rng) if settled else self._stay(rng)
                leave = max(t, self.opening - 1) + stay
                if self.tide:  # all clients leave when the tide turns
                    leave = min(leave, self.opening + self._phase(t) * self.tide)
                pool = absent[self._phase(t) % 2 if self.tide else 0]
                for _ in range(min(size, len(pool))):  # only absent clients can arrive
                    place = int(rng.integers(len(pool)))
                    pool[place], pool[-1] = pool[-1], pool[place]
                    heappush(leaving, (leave, pool[-1]))
                    rows.append((pool.pop(), t, leave))
        return Visits.of(rows)

    def _is_turn(self, t: int) -> bool:
        """Do `present` clients arrive at once in round t?"""
        turns = self.tide > 0 and t >= self.opening and self._phase(t) > self._phase(t - 1)
        return t == 0 or turns

    def _settled(self) -> list[int]:
        """The sizes of the parties that make up `present` clients."""
        whole, rest = divmod(self.present, self.party)
        return [self.party] * whole + [rest] * (rest > 0)

    def _parties(self, t: int, rng: np.random.Generator) -> list[int]:
        """The sizes of the parties that arrive in round t."""
        rate = self.present / self.stay / self.party if t >= self.opening else 0.0
        return [self.party] * int(rng.poisson(rate))

    def _phase(self, t: int) -> int:
        """How often the tide has turned by round t."""
        return max(0, (t - self.opening) // self.tide + 1) if self.tide else 0

    def _stay(self, rng: np.random.Generator) -> int:
        """The number of rounds that an arriving client stays: one, and on average `stay` - 1 more.

        The latter is a sample of the distribution, rounded down or up at random so that its mean is kept.
        """
        return 1 + int(self._sample(rng, self.shape) + rng.random())

    def _remaining(self, rng: np.random.Generator) -> int:
        """The remaining rounds, this one included, of a client that is there when the process is stationary.

        k rounds with probability P(a stay is k or longer) / stay: 1 with probability 1 / stay, else one
        more than the rest of a sample in progress. The rest of an exponential sample has the same
        distribution; that of a Pareto sample is Pareto with a shape smaller by 1.
        """
        if rng.random() < 1 / self.stay:
            return 1
        return 2 + int(self._sample(rng, self.shape - 1))

    def _sample(self, rng: np.random.Generator, shape: float) -> float:
        """A sample of the distribution; its mean is `stay` - 1 if `shape` is the setting `shape`."""
        if self.law == "exponential":
            return (self.stay - 1) * rng.exponential()
        return min((self.stay - 1) * (self.shape - 1) * rng.pareto(shape), MOST)

    def _alternating(self) -> Alternating:
        return Alternating(clients=self.clients, labels_overlap=self.labels_overlap)


@dataclass(frozen=True, kw_only=True)
class VisitTrace(Arrivals):
    """Recorded visits: a CSV or Parquet `file` with the columns client, arrive, leave, or a list, `stays`.

    A client exists in the rounds arrive <= t < leave and may come back. Without `round_minutes`, times are
    rounds, counted from 0. With it they are seconds or dates (ISO 8601): round 0 begins at the earliest time
    in the file, and a client exists in the rounds at whose beginning it is present, as with kind "live". A
    visit without an end lasts. Two `columns`, client and seen, stand for snapshots: a client that was seen
    in one exists until the next is taken. Clients with names are numbered by their first arrival.

    With `labels`, clients hold examples of different labels: the column `group` says which of these lists.
    """

    file: str = ""
    stays: tuple[tuple[int, ...], ...] = ()  # [client, arrive, leave]
    clients: int = 0  # clients that ever exist; 0: as many as the trace names
    round_minutes: float = 0.0  # the length of a round; 0: times are rounds
    columns: tuple[str, ...] = ("client", "arrive", "leave")
    labels: tuple[tuple[int, ...], ...] = ()  # one list per group
    group: str = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.file) == bool(self.stays):
            raise ConfigError(
                "population 'trace' must have visits: either a file or stays. "
                f"Got file = {self.file!r} and {len(self.stays)} stays. Set one of them."
            )
        minutes = self.round_minutes
        require(0 <= minutes < math.inf, "population.round_minutes", "zero or positive", minutes)
        must = "three names (client, arrive, leave) or two (client, seen)"
        require(len(self.columns) in (2, 3), "population.columns", must, list(self.columns))
        for number, row in enumerate(self.stays):
            where = f"population.stays[{number}]"
            fits = len(row) == 3 and 0 <= row[0] < MOST and 0 <= row[1] < row[2] < MOST
            must = f"client, arrive, leave with arrive < leave, all below {MOST:,}"
            require(fits, where, must, list(row))
        do = "Write them into a file with the column 'group'."
        require(
            not (self.stays and self.labels), "population.labels", "empty with stays", "lists", do
        )
        named = self._sizes()
        known = not self.clients or self.clients >= sum(named)
        must = f"at least {sum(named)}, the clients that the trace names"
        require(known, "population.clients", must, self.clients)
        must = "0 with labels: each group has the clients that the trace names"
        require(not (self.clients and self.labels), "population.clients", must, self.clients)
        must = f"one list for each of the {len(named)} groups of the trace"
        require(len(self.labels) in (0, len(named)), "population.labels", must, len(self.labels))

    def groups(self, classes: int) -> list[Group]:
        sizes = self._sizes()
        if self.labels:
            return [Group(size, of) for size, of in zip(sizes, self.labels, strict=True)]
        return [Group(self.clients or sum(sizes))]

    def visits(self, seed: int) -> Visits:
        # No session begins where the next visit of a client begins when the one before it ends.
        return joined(Visits.of(self.stays) if self.stays else self.recording().visits)

    def recording(self) -> Recording:
        """What the file says; read once, and again when it has changed."""
        form = Form(self.columns, self.round_minutes, self.group if self.labels else "")
        return read(Path(self.file), form)

    def _sizes(self) -> tuple[int, ...]:
        """How many clients the trace names, by group."""
        if self.stays:
            return (1 + max(row[0] for row in self.stays),)
        return self.recording().sizes
