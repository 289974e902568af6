"""Clients that are available at random times: independently per round, in stretches, by turns, or at night.

Availability rates may be given for each client, or depend on the clients' labels as in Wang and Ji, "A
Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging", ICLR 2024 (FedAU).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream, uniforms
from fedtide.core.types import Crowd, Round, Session
from fedtide.population.process import Available, Mask

Floats = NDArray[np.float64]


class AvailabilityRates(NamedTuple):
    """The state of a process without memory: the rate at which each client is available."""

    p: Floats  # [clients]


class Chain(NamedTuple):
    """The state of one Markov chain per client."""

    p: Floats  # [clients]: the rate at which each is available in the long run
    on: Mask  # [clients]: is it available now?
    seed: int


@dataclass(frozen=True, kw_only=True)
class Rated(Available):
    """Every client is available in a share p of all rounds.

    p is `rate` for all clients; or listed in `rates`; or, with `label_alpha` > 0, correlated with labels as
    in FedAU: psi ~ Dir(label_alpha) over the C labels and p = rate C <psi, the client's shares of labels>,
    at least `minimum` and at most 1. The mean of p is then `rate` only if labels are balanced and no p is
    cut off.
    """

    rate: float = 0.1
    rates: tuple[float, ...] = ()
    label_alpha: float = 0.0
    minimum: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.rate <= 1, "participation.rate", "a share in (0, 1]", self.rate)
        for n, p in enumerate(self.rates):
            require(0 <= p <= 1, f"participation.rates[{n}]", "a share in [0, 1]", p)
        alpha, minimum = self.label_alpha, self.minimum
        require(alpha >= 0, "participation.label_alpha", "positive, or 0 for equal rates", alpha)
        require(0 <= minimum <= 1, "participation.minimum", "a share in [0, 1]", minimum)
        require(
            not (self.rates and alpha),
            "participation.rates",
            "empty where label_alpha is set",
            list(self.rates),
            "Set one of them.",
        )

    def rates_of(self, crowd: Crowd, seed: int) -> Floats:
        """The rate p of each client."""
        if self.rates:
            must = f"one for each of the {crowd.clients} clients"
            require(len(self.rates) == crowd.clients, "participation.rates", must, len(self.rates))
            return np.array(self.rates)
        if not self.label_alpha:
            return np.full(crowd.clients, self.rate)
        counts = crowd.labels()
        shares = counts / counts.sum(1, keepdims=True).clip(min=1)
        classes = counts.shape[1]
        psi = stream(seed, "label rates").dirichlet(np.full(classes, self.label_alpha))
        p: Floats = (self.rate * classes * shares @ psi).clip(self.minimum, 1.0)
        return p

    def start(self, crowd: Crowd, seed: int) -> AvailabilityRates | Chain:
        return AvailabilityRates(self.rates_of(crowd, seed))


@dataclass(frozen=True, kw_only=True)
class Bernoulli(Rated):
    """Each client is available in each round independently, with probability p."""

    def present(self, who: AvailabilityRates, t: int, session: Session, seed: int) -> Mask:
        coins = uniforms(seed, "present", t, ids=session.clients, count=1)[:, 0]
        return coins < who.p[session.clients]


@dataclass(frozen=True, kw_only=True)
class Markov(Rated):
    """Clients are available and unavailable for stretches; in the long run each in a share p of the rounds.

    `change` is the larger of the two probabilities to switch: a client with p <= 1/2 leaves with probability
    `change` and returns with change p / (1 - p), so it stays 1 / change rounds on average. The first round is
    drawn from the stationary distribution.
    """

    change: float = 0.05

    @property
    def foresees(self) -> bool:
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.change <= 1, "participation.change", "a probability in (0, 1]", self.change
        )

    def start(self, crowd: Crowd, seed: int) -> Chain:
        p = self.rates_of(crowd, seed)
        return Chain(p, uniforms(seed, "markov", ids=np.arange(len(p)), count=1)[:, 0] < p, seed)

    def present(self, who: Chain, t: int, session: Session, seed: int) -> Mask:
        return who.on[session.clients]

    def observe(self, who: Chain, done: Round) -> Chain:
        p, tiny = who.p, np.finfo(float).tiny
        arrive = self.change * np.minimum(1, p / (1 - p).clip(min=tiny))
        leave = self.change * np.minimum(1, (1 - p) / p.clip(min=tiny))
        coins = uniforms(who.seed, "markov", done.t, ids=np.arange(len(p)), count=1)[:, 0]
        return who._replace(on=np.where(who.on, coins >= leave, coins < arrive))


@dataclass(frozen=True, kw_only=True)
class Cyclic(Available):
    """Groups of clients with neighbouring ids take turns; a turn lasts `turn` rounds."""

    groups: int = 4
    turn: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.groups >= 1, "participation.groups", "at least 1", self.groups)
        require(self.turn >= 1, "participation.turn", "at least 1", self.turn)

    def check(self, session: Session) -> None:
        must = f"at most the {len(session.clients)} clients of session {session.number}"
        require(self.groups <= len(session.clients), "participation.groups", must, self.groups)

    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        population = len(session.clients)
        group = np.arange(population) * self.groups // population
        mask: Mask = group == (t - session.first) // self.turn % self.groups
        return mask


@dataclass(frozen=True, kw_only=True)
class Diurnal(Available):
    """Clients are available at night, while they charge, in time zones spread evenly around the day.

    A client is available with probability `night` during the `hours` from `evening` on, in its own time zone,
    and with probability `day` otherwise; over whole days its rate is (hours night + (24 - hours) day) / 24.
    """

    round_minutes: float = 10.0
    zones: int = 24
    evening: float = 22.0
    hours: float = 8.0
    night: float = 0.8
    day: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        minutes = self.round_minutes
        require(0 < minutes < np.inf, "participation.round_minutes", "a positive number", minutes)
        require(self.zones >= 1, "participation.zones", "at least 1", self.zones)
        require(0 <= self.evening < 24, "participation.evening", "an hour in [0, 24)", self.evening)
        require(0 <= self.hours <= 24, "participation.hours", "in [0, 24]", self.hours)
        for name in ("night", "day"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"participation.{name}", "a probability in [0, 1]", value)

    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        zone = np.floor(uniforms(seed, "zone", ids=session.clients, count=1)[:, 0] * self.zones)
        clock = t * self.round_minutes / 60 + zone * 24 / self.zones
        at_night = (clock - self.evening) % 24 < self.hours
        coins = uniforms(seed, "present", t, ids=session.clients, count=1)[:, 0]
        mask: Mask = coins < np.where(at_night, self.night, self.day)
        return mask
