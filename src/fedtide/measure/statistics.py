"""Paired comparisons of methods over seeds.

A seed determines data, clients and the first model for every method alike, so methods are compared seed by
seed: what is analysed are the differences of two methods, one per seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from fedtide.measure.distributions import NORMAL, student_p, student_quantile

LEVEL = 0.05  # of tests; intervals have 1 - LEVEL
POWER = 0.8  # with which the seeds that are needed would tell two methods apart
MOST_SEEDS = 1000  # that are ever asked for
MOST_FLIPPED = 40  # seeds whose sign permutations are counted: two halves of 2^20
EQUAL = 1e-9  # sums of differences closer than this, relative to their size, are equal

Scores = Mapping[int, float]  # one number per seed


class Paired(NamedTuple):
    """The differences of two methods over the seeds that both have; `first` has the higher mean."""

    first: int
    second: int
    seeds: int
    difference: float  # mean of first - second
    margin: float  # half of the width of the 95 % interval
    p: float  # of the paired t-test, two-sided
    p_permutation: float | None  # of all sign permutations; None with too many seeds
    spread: float  # standard deviation of the differences
    p_holm: float = 1.0  # p, corrected for all comparisons of the study
    level: float = LEVEL  # at which Holm's method tests p

    @property
    def is_clear(self) -> bool:
        """Do the seeds tell the two methods apart?"""
        return self.p_holm < LEVEL

    @property
    def more(self) -> int | None:
        """How many more seeds would tell the two apart; None: more than a thousand."""
        if self.is_clear:
            return 0
        needed = seeds_needed(self.difference, self.spread, self.level)
        return None if needed is None else max(needed - self.seeds, 1)

    def as_json(self) -> dict[str, Any]:
        """The comparison in summary.json, without the names of its methods."""
        low, high = self.difference - self.margin, self.difference + self.margin
        return {
            "seeds": self.seeds,
            "difference": self.difference,
            "interval": [low, high],
            "p": self.p,
            "p_holm": self.p_holm,
            "p_permutation": self.p_permutation,
            "smallest_p_permutation": smallest_p(self.seeds),
            "clear": self.is_clear,
            "more_seeds": self.more,
        }


def paired(groups: Sequence[Mapping[int, Scores]]) -> list[Paired]:
    """Every pair of methods of every group, p corrected by Holm's method over all of them.

    A group has the scores of each method by its number. Pairs without two common seeds are left out.
    """
    found = []
    for group in groups:
        for one, other in combinations(group, 2):
            seeds = [seed for seed in group[one] if seed in group[other]]
            if len(seeds) < 2:
                continue
            gaps = [group[one][seed] - group[other][seed] for seed in seeds]
            found.append(
                _of_pair(other, one, [-gap for gap in gaps])
                if fmean(gaps) < 0
                else _of_pair(one, other, gaps)
            )
    ps = [pair.p for pair in found]
    return [
        pair._replace(p_holm=p, level=level)
        for pair, p, level in zip(found, holm(ps), holm_levels(ps), strict=True)
    ]


def _of_pair(one: int, other: int, gaps: Sequence[float]) -> Paired:
    """The paired t-test. If all differences are equal, t has no value, and p is the permutations'."""
    n, mean, spread = len(gaps), fmean(gaps), stdev(gaps)
    error = spread / math.sqrt(n)
    flipped = permutation_p(gaps)
    if error <= EQUAL * abs(mean):
        p = flipped if flipped is not None else smallest_p(n)
        return Paired(one, other, n, mean, 0.0, p, flipped, 0.0)
    margin = student_quantile(1 - LEVEL / 2, n - 1) * error
    p = student_p(mean / error, n - 1)
    return Paired(one, other, n, mean, margin, p, flipped, spread)


def permutation_p(gaps: Sequence[float]) -> float | None:
    """The share of all sign patterns of the differences whose sum is at least as far from zero.

    Exact: the sums of two halves are listed, and pairs of them are counted by bisection.
    """
    n = len(gaps)
    if n > MOST_FLIPPED:
        return None
    total = abs(math.fsum(gaps))
    total -= EQUAL * math.fsum(map(abs, gaps))  # rounding must not decide
    some, rest = _signed_sums(gaps[: n // 2]), np.sort(_signed_sums(gaps[n // 2 :]))
    above = len(rest) - np.searchsorted(rest, total - some, side="left")
    below = np.searchsorted(rest, -total - some, side="right")
    return 1.0 if total <= 0 else float(np.sum(above + below) / 2.0**n)


def _signed_sums(gaps: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    sums = np.zeros(1)
    for gap in gaps:
        sums = np.concatenate([sums + gap, sums - gap])
    return sums


def smallest_p(seeds: int) -> float:
    """The smallest p of a sign permutation test with so many seeds: all of them agree."""
    return min(1.0, 2.0 ** (1 - seeds))


def holm(ps: Sequence[float]) -> list[float]:
    """P-values corrected for so many tests (Holm, 1979)."""
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


def holm_levels(ps: Sequence[float]) -> list[float]:
    """The level at which Holm's method tests each of these p-values."""
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    ranks = {place: rank for rank, place in enumerate(order)}
    return [LEVEL / (len(ps) - ranks[place]) for place in range(len(ps))]


def seeds_needed(difference: float, spread: float, level: float = LEVEL) -> int | None:
    """Seeds with which a paired t-test at this level finds this difference with a probability of 80 %.

    Difference and standard deviation are taken as the true ones. None if more than 1000 would be needed.
    """

    def finds(n: int) -> bool:
        quantiles = student_quantile(1 - level / 2, n - 1) + student_quantile(POWER, n - 1)
        return math.sqrt(n) * abs(difference) >= quantiles * spread

    if difference == 0:
        return None
    normal = NORMAL.inv_cdf(1 - level / 2) + NORMAL.inv_cdf(POWER)
    least = math.ceil((normal * spread / difference) ** 2)  # t has heavier tails: a few more
    return next((n for n in range(max(2, least), MOST_SEEDS + 1) if finds(n)), None)
