"""FAST: any participation process with uniform snapshot rounds in between.

Li et al., "FAST: A Lightweight Mechanism Unleashing Arbitrary Client Participation in Federated Learning",
Algorithms 1 and 2. It changes only which clients take part, so it can be combined with every algorithm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import stream
from fedtide.core.types import Crowd, Ids, Round, Session, fall
from fedtide.population.laws import Beta
from fedtide.population.process import SLACK, Participation
from fedtide.population.uniform import Uniform


class Who(NamedTuple):
    """The state of FAST."""

    inner: Any  # the state of the process that it wraps
    q: float  # the probability of a snapshot
    credit: (
        float | None
    )  # the last round's training accuracy, Delta of Algorithm 2, or other credit


@dataclass(frozen=True, kw_only=True)
class Fast(Participation):
    """Snapshot rounds with probability `q`, every `interval` rounds, or adaptively.

    `adaptive` is Algorithm 2: q starts at 0 and grows by `lambda` times the fall of the training
    accuracy from one round to the next (mean over the cohort of each client's accuracy on the batches of
    its round; the authors' code keeps a running mean over a client's epoch). In tasks without right and
    wrong answers the loss takes the place of the accuracy, and its growth is relative. A round without a
    cohort changes nothing.

    A snapshot's cohort is uniform: `clients`, or a `rate` of the clients that exist, 10% by default. In
    practice some clients do not answer, so the paper asks more clients than it needs and waits longer: with
    `oversample` = 1.3 and `dropout` = 0.116 (Yang et al., 2021), ceil(1.3 m) clients are asked, each fails
    to answer with probability 0.116, and the first m that answer, in random order, take part (or fewer).
    `wait` is the factor by which a snapshot's deadline is longer. A network with a deadline counts both
    costs: all clients that were asked share the bandwidth, and if fewer than m deliver, the server waits to
    the deadline.
    """

    of: Participation = field(default_factory=Beta)
    q: float = 0.0
    interval: int = 0
    adaptive: bool = False
    lambda_: float = 1.0
    clients: int = 0
    rate: float = 0.0
    oversample: float = 1.0
    dropout: float = 0.0
    wait: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.q <= 1, "participation.q", "a probability in [0, 1]", self.q)
        must = "at least 1, or 0 for no interval"
        require(self.interval >= 0, "participation.interval", must, self.interval)
        require(0 <= self.lambda_ < np.inf, "participation.lambda", "zero or more", self.lambda_)
        require(
            1 <= self.oversample < np.inf, "participation.oversample", "1 or more", self.oversample
        )
        require(0 <= self.dropout < 1, "participation.dropout", "in [0, 1)", self.dropout)
        require(1 <= self.wait < np.inf, "participation.wait", "1 or more", self.wait)
        if (self.q > 0) + (self.interval > 0) + self.adaptive > 1:
            raise ConfigError(
                "participation 'fast' must have one rule for snapshots: q, interval or adaptive. "
                f"Got q = {self.q}, interval = {self.interval}, adaptive = {self.adaptive}. Set one."
            )
        _ = self.uniform  # raises a ConfigError if `clients` or `rate` is wrong

    @property
    def listens(self) -> bool:
        return self.adaptive or self.of.listens

    @property
    def uniform(self) -> Uniform:
        """The process that draws the cohorts of snapshot rounds."""
        rate = self.rate if self.rate or self.clients else 0.1
        return Uniform(clients=self.clients, rate=rate)

    def start(self, crowd: Crowd, seed: int) -> Who:
        q = 1 / self.interval if self.interval else self.q
        return Who(self.of.start(crowd, seed), q, None)

    def check(self, session: Session) -> None:
        self.of.check(session)
        self.uniform.check(session)

    def is_snapshot(self, who: Who, t: int, seed: int) -> bool:
        """Is round t a snapshot round?"""
        if self.interval:
            return t % self.interval == 0
        return bool(stream(seed, "snapshot", t).random() < who.q)

    def draw(self, who: Who, t: int, session: Session, seed: int) -> Ids:
        if not self.is_snapshot(who, t, seed):
            return self.of.draw(who.inner, t, session, seed)
        asked = replace(self.uniform, clients=self.asked(session), rate=0.0)
        ids = asked.draw(None, t, session, seed)
        rng = stream(seed, "answers", t)
        answered = ids[rng.random(len(ids)) >= self.dropout] if self.dropout else ids
        needed = self.uniform.count(len(session.clients))
        if len(answered) <= needed:
            return answered
        return np.sort(rng.permutation(answered)[:needed])

    def asked(self, session: Session) -> int:
        """The number of clients that a snapshot asks to take part."""
        needed = self.uniform.count(len(session.clients))
        return min(ceil(self.oversample * needed - SLACK), len(session.clients))

    def facts(self, who: Who, t: int, session: Session, seed: int) -> Mapping[str, Any]:
        if self.is_snapshot(who, t, seed):
            asked, hoped = self.asked(session), self.uniform.count(len(session.clients))
            more = {"asked": asked, "hoped": hoped, "wait": self.wait}
            return {"snapshot": True, "q": who.q, **more}
        return {"snapshot": False, "q": who.q, **self.of.facts(who.inner, t, session, seed)}

    def observe(self, who: Who, done: Round) -> Who:
        who = who._replace(inner=self.of.observe(who.inner, done))
        credit = done.credit
        if not self.adaptive or credit is None:
            return who
        lost = 0.0 if who.credit is None else fall(who.credit, credit)
        q = min(1.0, max(0.0, who.q + self.lambda_ * lost))  # lines 4-5
        return who._replace(q=q, credit=credit)  # line 6
