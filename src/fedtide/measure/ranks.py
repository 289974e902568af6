"""Methods compared over several problems, such as datasets: mean ranks and Nemenyi's critical difference.

J. Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006),
https://jmlr.org/papers/v7/demsar06a.html
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtide.measure.distributions import f_p, range_quantile
from fedtide.measure.statistics import LEVEL

MANY = 20  # methods, whose orders are too many to limit p


@dataclass(frozen=True)
class Ranks:
    """The mean rank of every method over the problems, the best first."""

    problems: int
    ranks: Mapping[str, float]  # 1: the best in every problem
    p: float  # of the hypothesis that all methods are equal (Friedman's test, Iman and Davenport's form)
    critical: float  # mean ranks that differ by less cannot be told apart (Nemenyi's test)

    @property
    def level(self) -> list[list[str]]:
        """The largest groups of methods whose mean ranks differ by less than the critical difference."""
        names = list(self.ranks)
        found: list[list[str]] = []
        for place, name in enumerate(names):
            near = [n for n in names[place:] if self.ranks[n] - self.ranks[name] < self.critical]
            if len(near) > 1 and not any(set(near) <= set(other) for other in found):
                found.append(near)
        return found

    def as_json(self) -> dict[str, Any]:
        """The ranks in summary.json."""
        return {
            "problems": self.problems,
            "mean_ranks": dict(self.ranks),
            "p": self.p,
            "critical_difference": self.critical,
        }


def ranked(scores: Sequence[Mapping[str, float]]) -> Ranks | None:
    """The ranks of methods from their scores in every problem; higher is better, ties share their ranks.

    Only methods that every problem has count. None without two problems and two such methods.
    """
    names = [name for name in scores[0] if all(name in one for one in scores)] if scores else []
    n, k = len(scores), len(names)
    if n < 2 or k < 2:
        return None
    table = [_ranks([one[name] for name in names]) for one in scores]
    means = {name: math.fsum(row[i] for row in table) / n for i, name in enumerate(names)}
    critical = range_quantile(1 - LEVEL, k) / math.sqrt(2) * math.sqrt(k * (k + 1) / (6 * n))
    ordered = dict(sorted(means.items(), key=lambda item: item[1]))
    return Ranks(n, ordered, _friedman_p(list(means.values()), n), critical)


def _ranks(scores: Sequence[float]) -> list[float]:
    """The rank of each score, 1 for the highest; equal scores share the mean of their ranks."""
    return [
        1 + sum(other > one for other in scores) + (sum(other == one for other in scores) - 1) / 2
        for one in scores
    ]


def _friedman_p(means: Sequence[float], n: int) -> float:
    """P of Iman and Davenport's F; at least that of n problems which all rank the methods alike."""
    k = len(means)
    squares = math.fsum(mean * mean for mean in means)
    friedman = 12 * n / (k * (k + 1)) * (squares - k * (k + 1) ** 2 / 4)
    least = math.factorial(k) ** (1.0 - n) if k < MANY else 0.0
    left = n * (k - 1) - friedman
    if left <= 1e-12 * n * k:
        return least
    return max(least, f_p((n - 1) * friedman / left, k - 1, (k - 1) * (n - 1)))
