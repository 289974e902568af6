"""Newcomers: a start once the present model fits clients that came worse than those it was trained with.

Clients test the model that they would train next. A test is made when clients came or went, and every few
rounds; each client returns its mean loss. The clients of a test are the reference for `every` rounds, and the
server keeps their losses f_u; a client that left can not be tested again, so its loss moves with the mean
change of those that stayed:

1. f_u <- the tested loss of every client that is tested;
   f_u <- f_u + mean over tested clients s of the reference of the change of f_s, for the others;
2. Student's t-test of "the mean loss of clients that came since the reference is no higher than the mean of
   f_u over the clients of the reference, plus two of their standard deviations" returns a probability p_k in
   the k-th test; under this hypothesis both have one variance;
3. a start is due if p_k <= alarms / (k (k + 1)). These levels add up to `alarms`, so, whatever the number of
   tests, the probability of a false alarm between two starts is at most that.

Two standard deviations allow for what a model always does: it fits clients that it was trained with better
than others like them, and more so if clients differ much. The test is exact for normally distributed losses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt
from typing import ClassVar

import numpy as np

from fedtide.core.errors import require
from fedtide.core.types import Tested
from fedtide.starts.trigger import Always, Numbers, Situation, Trigger, Turnover, Watch

ALLOWANCE = 2  # standard deviations between clients
SMALLEST = 1e-16  # probability that is written


@dataclass(frozen=True, kw_only=True)
class Newcomers(Trigger):
    """A start once the loss of clients that came is above that of clients the model was trained with."""

    listens: ClassVar[bool] = True
    tests: ClassVar[bool] = True
    alarms: float = 0.05  # the highest probability of a false alarm between two starts
    clients: int = 50  # clients that test; 0: all
    every: int = (
        5  # rounds after which a client is no newcomer, and the longest time between two tests
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.alarms < 1, "start.trigger.alarms", "in (0, 1)", self.alarms)
        require(self.clients >= 0, "start.trigger.clients", "zero or positive", self.clients)
        require(self.every >= 1, "start.trigger.every", "at least 1", self.every)

    def watch(self, change: Situation) -> Watch:
        before, t = change.era.watch, change.t
        is_news = t == change.session.first or t - before.t >= self.every
        if before.t >= 0 and not is_news:
            return before
        tested = change.losses(self.clients)
        if not len(tested.ids):
            return before
        now = tested.losses[0]
        known = moved(before, tested)  # step 1
        came = now[~np.isin(tested.ids, before.ids)]
        looks, p = before.looks, 1.0
        if min(len(known), len(came)) >= 2:
            looks, p = looks + 1, higher(came - ALLOWANCE * known.std(ddof=1), known)  # step 2
        if before.t < 0 or t - before.since >= self.every:
            return Watch(t, t, tested.ids, now, looks, p)
        return Watch(t, before.since, before.ids, known, looks, p)

    def fires(self, change: Situation) -> bool:
        watch = change.era.watch
        level = self.alarms / max(watch.looks * (watch.looks + 1), 1)
        return watch.t == change.t and watch.result <= level  # step 3

    def reason(self, change: Situation) -> str:
        p = change.era.watch.result
        chance = f"p = {p:.2g}" if p > SMALLEST else f"p < {SMALLEST:g}"
        return f"the loss of clients that came is higher than of those before, {chance}"

    def facts(self, watch: Watch) -> Mapping[str, float]:
        return {"newcomers_p": watch.result}


def moved(before: Watch, tested: Tested) -> Numbers:
    """The losses of the reference's clients after a test, whether they were tested or not."""
    _, old, new = np.intersect1d(before.ids, tested.ids, return_indices=True)
    change = (tested.losses[0][new] - before.losses[old]).mean() if len(old) else 0.0
    losses = before.losses + change
    losses[old] = tested.losses[0][new]
    return losses


def higher(one: Numbers, other: Numbers) -> float:
    """Student's test: the probability of a difference like this or greater if the means are equal."""
    freedom = len(one) + len(other) - 2
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in (one, other))
    error = sqrt(squares / freedom * (1 / len(one) + 1 / len(other)))
    difference = float(one.mean() - other.mean())
    if not error:
        return 0.0 if difference > 0 else 1.0
    return student_tail(difference / error, freedom)


@dataclass(frozen=True, kw_only=True)
class AutoTrigger(Trigger):
    """What suits the population: "always" where it is given as sessions, else "newcomers".

    Where clients may not test models, because of privacy noise, "turnover" replaces "newcomers".
    """

    def settled(self, as_sessions: bool, may_test: bool) -> Trigger:
        if as_sessions:
            return Always(rest=self.rest)
        return Newcomers(rest=self.rest) if may_test else Turnover(rest=self.rest)

    def fires(self, change: Situation) -> bool:
        raise NotImplementedError  # an experiment settles it before anything runs


def student_tail(t: float, freedom: int) -> float:
    """The probability that a t-distributed number with so many degrees of freedom exceeds t.

    The closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    angle = atan(t / sqrt(freedom))
    first = 1 + freedom % 2
    terms, term = 0.0, cos(angle) if freedom % 2 else 1.0
    for k in range(first, freedom, 2):
        terms += term
        term *= cos(angle) ** 2 * k / (k + 1)
    inside = sin(angle) * terms
    if freedom % 2:
        inside = 2 / pi * (angle + inside)
    return (1 - inside) / 2
