"""Tails and quantiles for comparisons of methods: Student's t, F and the studentized range.

SciPy has them, too, but takes 0.7 s to import and 140 MB on disk; the tests compare with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist

STEPS = 200  # halvings of an interval; double precision ends after about 60
TERMS = 1_000  # of a continued fraction; about 20 are needed
TINY = 1e-300
NORMAL = NormalDist()


def student_p(t: float, df: int) -> float:
    """P(|T| >= |t|) for Student's t with `df` degrees of freedom."""
    square = t * t
    if square < df:  # near 1, where 1 - x would lose digits
        return 1 - incomplete_beta(square / (df + square), 0.5, df / 2)
    return incomplete_beta(df / (df + square), df / 2, 0.5)


@cache
def student_quantile(p: float, df: int) -> float:
    """The t with P(T <= t) = p, for p of at least 1/2."""
    return inverse(lambda t: 1 - student_p(t, df) / 2, p)


def f_p(f: float, first: int, second: int) -> float:
    """P(F >= f) for an F distribution with these degrees of freedom."""
    return 1.0 if f <= 0 else incomplete_beta(second / (second + first * f), second / 2, first / 2)


@cache
def range_quantile(p: float, groups: int) -> float:
    """The quantile of the range of so many standard normal numbers (Tukey's q with infinite df)."""
    return inverse(lambda q: _range_cdf(q, groups), p)


def _range_cdf(q: float, groups: int) -> float:
    """P(range <= q) = k * integral of phi(z) (Phi(z) - Phi(z - q))^(k - 1), by the trapezoidal rule."""
    step = 1 / 32
    points = (number * step for number in range(-8 * 32, 8 * 32 + 1))
    inner = (NORMAL.pdf(z) * (NORMAL.cdf(z) - NORMAL.cdf(z - q)) ** (groups - 1) for z in points)
    return groups * step * math.fsum(inner)


def inverse(rising: Callable[[float], float], value: float) -> float:
    """The x >= 0 at which a rising function reaches this value."""
    low, high = 0.0, 1.0
    while rising(high) < value:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return high


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - incomplete_beta(1 - x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = result
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            result *= c * d
        if abs(result - before) <= 1e-16 * abs(result):
            break
    return result


def _away_from_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
