"""Patterns of presence by name: the six of DPFL, and handover between the cells of a network.

"Dynamic Client Participation in Federated Learning: Benchmarks and a Knowledge Pool Plugin" (DPFL, arXiv
2511.16523) names `static` (kind "fixed" here), `incremental-arrival`, `incremental-departure`,
`round-robin`, `random` and `markov`. Their defaults are those of its code where it has any. As there, one
client chosen at random is present in rounds of `random` and `markov` that would have none.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream, uniforms
from fedtide.core.types import Group
from fedtide.population.arrivals import Arrivals
from fedtide.population.sessions import Fixed
from fedtide.population.visits import Visits

Mask = NDArray[np.bool_]
MOST_CELLS = 10**8  # the largest number of clients x rounds in memory


@dataclass(frozen=True, kw_only=True)
class StaticPresence(Fixed):
    """The same clients from the first round to the last, as with kind "fixed"."""


@dataclass(frozen=True, kw_only=True)
class PresencePattern(Arrivals):
    """Clients come and go by a rule; `rounds` is the number of all rounds."""

    clients: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1", self.clients)
        must = f"so many that clients times rounds is at most {MOST_CELLS:,}"
        require(self.clients * self.rounds <= MOST_CELLS, "population.rounds", must, self.rounds)

    def groups(self, classes: int) -> list[Group]:
        return [Group(self.clients)]

    def visits(self, seed: int) -> Visits:
        return Visits.where(self.presence(seed))

    @abstractmethod
    def presence(self, seed: int) -> Mask:
        """Which clients exist in which rounds: [rounds, clients]."""


@dataclass(frozen=True, kw_only=True)
class Staircase(PresencePattern):
    """The first `initial` clients always exist; the others change in the order of their numbers.

    In round `begin` the first `party` of them change, and every `every` rounds the next.
    """

    initial: int = 2
    begin: int = 5
    every: int = 3
    party: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        must = f"from 0 to the {self.clients} clients"
        require(0 <= self.initial <= self.clients, "population.initial", must, self.initial)
        for name in ("begin", "every", "party"):
            value = getattr(self, name)
            require(value >= 1, f"population.{name}", "at least 1", value)

    def changed(self, order: NDArray[np.int64]) -> Mask:
        """Which clients have changed by which round, if client u is the order[u]-th to change."""
        turns = self.begin + self.every * (order // self.party)
        mask: Mask = np.arange(self.rounds)[:, None] >= turns
        return mask


@dataclass(frozen=True, kw_only=True)
class IncrementalArrival(Staircase):
    """`initial` clients exist at first; from round `begin` on `party` more arrive every `every` rounds."""

    def presence(self, seed: int) -> Mask:
        order = np.arange(self.clients) - self.initial
        return self.changed(order) | (order < 0)


@dataclass(frozen=True, kw_only=True)
class IncrementalDeparture(Staircase):
    """All clients exist at first; from round `begin` on `party` leave every `every` rounds.

    The client with the highest number leaves first; the first `initial` clients stay.
    """

    def presence(self, seed: int) -> Mask:
        numbers = np.arange(self.clients)
        return ~self.changed(numbers[::-1]) | (numbers < self.initial)


@dataclass(frozen=True, kw_only=True)
class RoundRobin(PresencePattern):
    """Clients with neighbouring numbers take turns: in turn k these are k to k + `present` - 1.

    A turn lasts `every` rounds, then client k leaves and client k + `present` arrives; after the last client
    comes the first.
    """

    present: int = 2
    every: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        must = f"from 1 to the {self.clients} clients"
        require(1 <= self.present <= self.clients, "population.present", must, self.present)
        require(self.every >= 1, "population.every", "at least 1", self.every)

    def presence(self, seed: int) -> Mask:
        turn = np.arange(self.rounds)[:, None] // self.every
        mask: Mask = (np.arange(self.clients) - turn) % self.clients < self.present
        return mask


@dataclass(frozen=True, kw_only=True)
class RandomPresence(PresencePattern):
    """In every round each client exists with probability `rate`, independently."""

    rate: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.rate <= 1, "population.rate", "a probability in (0, 1]", self.rate)

    def presence(self, seed: int) -> Mask:
        return never_empty(coins(self, seed, "random presence") < self.rate, seed)


@dataclass(frozen=True, kw_only=True)
class MarkovPresence(PresencePattern):
    """A present client stays for another round with probability `stay`, an absent one arrives with `arrive`.

    In the first round each client exists with probability 1/2.
    """

    stay: float = 0.8
    arrive: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stay", "arrive"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"population.{name}", "a probability in [0, 1]", value)

    def presence(self, seed: int) -> Mask:
        drawn = coins(self, seed, "markov presence")
        there = np.empty(drawn.shape, dtype=bool)
        there[0] = drawn[0] < 0.5
        for t in range(1, self.rounds):
            there[t] = drawn[t] < np.where(there[t - 1], self.stay, self.arrive)
        return never_empty(there, seed)


@dataclass(frozen=True, kw_only=True)
class Handover(PresencePattern):
    """Clients move between `cells` cells in a ring; those in the server's own cell exist.

    A client stays in a cell for `stay` rounds on average, then it moves to one of the two neighbouring cells.
    In the first round each client is in any cell with the same probability, so clients / cells exist on
    average in every round.
    """

    clients: int = 60
    cells: int = 6
    stay: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.cells >= 2, "population.cells", "at least 2", self.cells)
        require(self.stay >= 1, "population.stay", "at least 1 round", self.stay)

    def presence(self, seed: int) -> Mask:
        drawn = coins(self, seed, "handover")
        leaves = 1 / self.stay
        steps = np.where(drawn < leaves / 2, -1, np.where(drawn < leaves, 1, 0))
        steps[0] = np.floor(drawn[0] * self.cells)  # the first cell
        mask: Mask = steps.cumsum(0) % self.cells == 0
        return mask


def coins(population: PresencePattern, seed: int, name: str) -> NDArray[np.float64]:
    """Uniform random numbers [rounds, clients]: client u has the same ones in a population of any size."""
    return uniforms(seed, name, ids=np.arange(population.clients), count=population.rounds).T


def never_empty(there: Mask, seed: int) -> Mask:
    """The mask with one random client in every round that has none."""
    empty = np.flatnonzero(~there.any(1))
    there[empty, stream(seed, "never empty").integers(there.shape[1], size=len(empty))] = True
    return there
