"""The number of steps, the frequency and the power of each client: problem (5) of OSAFL.

Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the Resource Constraints in Wireless
Networks", section II-C and Appendix B:

    max   eps k / (0.5 v C f^2)  +  (1 - eps) w log2(1 + g p) / p                                     (5)
    s.t.  1 <= k <= kappa,  p <= p_max,  f <= f_max,
          0.5 v C k f^2 + p S / R(p) <= e_bd,    C k / f + S / R(p) <= t_th,    R(p) = w log2(1 + g p)

Both terms fall as f and p grow, and energy rises, so at the optimum the deadline is tight and one number is
left to choose, the time tau of the upload. With a tight deadline

    p = (2^(S / (w tau)) - 1) / g,    f = C k / (t_th - tau),

and the energy is convex in tau, so the feasible tau of each k form an interval that shrinks as k grows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

GRID = 48  # values of tau that are tried before the best one is refined
GOLDEN = (np.sqrt(5) - 1) / 2
SLACK = 1e-9  # the relative rounding error by which a limit may be exceeded


class Problem(NamedTuple):
    """Problem (5) of many clients; each field is [U], in SI units."""

    kappa: Floats  # the most local steps
    C: Floats  # n n_bar c_u s_u: cycles per step
    v: Floats  # effective capacitance
    S: Floats  # N (FPP + 1): bits to send
    w: Floats  # omega: bandwidth
    g: Floats  # Xi Gamma / (omega xi^2): signal over noise per watt
    f_max: Floats
    p_max: Floats
    e_bd: Floats  # energy budget, may be infinite
    t_th: Floats  # deadline
    eps: Floats  # epsilon: the weight of computing, against sending


class Allocation(NamedTuple):
    """The steps, frequency and power of each client; all 0 if problem (5) has no solution."""

    k: NDArray[np.int64]  # local steps
    f: Floats  # hertz
    p: Floats  # watts


def rate(q: Problem, p: Floats) -> Floats:
    """R(p), the rate of the upload."""
    return np.asarray(q.w * np.log2(1 + q.g * p))


def objective(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """The objective of (5)."""
    computing = k / (0.5 * q.v * q.C * f**2)
    return q.eps * computing + (1 - q.eps) * rate(q, p) / p


def energy(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """The energy, the left side of (5d)."""
    return 0.5 * q.v * q.C * k * f**2 + p * q.S / rate(q, p)


def time(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """Seconds of computation and upload: the left side of (5e)."""
    return q.C * k / f + q.S / rate(q, p)


def feasible(q: Problem, k: Floats, f: Floats, p: Floats, slack: float = SLACK) -> Bools:
    """Do the constraints (5a) to (5e) hold? For clients that take part, k >= 1."""
    more = 1 + slack
    inside = (k >= 1) & (k <= q.kappa) & (f > 0) & (p > 0)
    inside &= (f <= q.f_max * more) & (p <= q.p_max * more)
    return np.asarray(
        inside & (energy(q, k, f, p) <= q.e_bd * more) & (time(q, k, f, p) <= q.t_th * more)
    )


def alternating(q: Problem, sweeps: int = 50, precision: float = 1e-9) -> Allocation:
    """(a) Algorithm 1: Lemma 1 for k, Lemma 2 for f, Algorithm 3 for p, until nothing changes.

    The paper does not say where it starts. Here it starts at the point that allows the most steps: from a
    point without a feasible k for some client, that client would not take part although it could. Steps are
    whole numbers: Lemma 1's are rounded down. Lemma 2 makes the deadline tight, so Algorithm 3 finds no lower
    power than the one it is given: the first point determines p, and one sweep determines the rest.
    """
    who, able = _able(q)
    tau = _peak(able)
    f, p = _frequency(able, tau), _upload_power(able, tau)
    k = np.zeros_like(f)
    for _ in range(sweeps):
        k = _at_least_one(lemma_1(able, f, p))
        before, f = f, np.minimum(lemma_2(able, k, p), able.f_max)
        moved, p = p, algorithm_3(able, k, f, p, precision=precision)
        if np.all(abs(f - before) <= precision * f) and np.all(abs(p - moved) <= precision * p):
            break
    return _answer(q, who, k, f, p)


def lemma_1(q: Problem, f: Floats, p: Floats) -> Floats:
    """Eq. 7, rounded down: the most steps within budget and deadline, given f and p."""
    by_energy = (q.e_bd - p * q.S / rate(q, p)) / (0.5 * q.v * q.C * f**2)
    by_time = f * (q.t_th - q.S / rate(q, p)) / q.C
    steps: Floats = np.floor(np.minimum(q.kappa, np.minimum(by_energy, by_time)) * (1 + SLACK))
    return steps


def lemma_2(q: Problem, k: Floats, p: Floats) -> Floats:
    """Eq. 9: the lowest frequency that meets the deadline, given k and p."""
    return q.C * k / (q.t_th - q.S / rate(q, p))


def algorithm_3(
    q: Problem, k: Floats, f: Floats, p: Floats, rounds: int = 50, precision: float = 1e-9
) -> Floats:
    """Algorithm 3: successive convex approximation of the power, given k and f."""
    for _ in range(rounds):
        before, p = p, power(q, k, f, p)
        if np.all(abs(p - before) <= precision * p):
            break
    return p


def power(q: Problem, k: Floats, f: Floats, p_j: Floats) -> Floats:
    """Eq. 52: with both curves replaced by their tangents at p_j, a linear problem in one variable.

    Its optimum is an end of the feasible interval: the lower one, because log(1 + g p) / p has a negative
    slope everywhere. If the interval is empty, p_j is returned.
    """
    log = np.log1p(q.g * p_j)
    slope = q.g / (p_j * (1 + q.g * p_j)) - log / p_j**2  # Eq. 12
    spent = p_j / log
    rise = 1 / log - q.g * p_j / (log**2 * (1 + q.g * p_j))  # Eq. 13; positive
    left = (q.e_bd - 0.5 * q.v * q.C * k * f**2) * q.w / (q.S * np.log(2))
    most = np.minimum(q.p_max, p_j + (left - spent) / rise)  # Eqs. 52a, 52b
    least = at_rate(q, q.S / np.maximum(q.t_th - q.C * k / f, 1e-300))  # Eq. 52c
    best = np.where(slope > 0, most, least)
    return np.where(least <= most * (1 + SLACK), best, p_j)


def at_rate(q: Problem, bits_per_second: Floats) -> Floats:
    """The power that gives this rate."""
    return np.asarray(np.expm1(np.log(2) * np.minimum(bits_per_second / q.w, 1000.0)) / q.g)


def exact(q: Problem) -> Allocation:
    """(b) The optimum of problem (5).

    For a given tau the first term of (5) is eps (t_th - tau)^2 / (0.5 v k C^3). It falls with k, and the
    interval of feasible tau shrinks, so the optimum is a single step. (The objective rewards low frequencies
    more than steps; `most` maximises steps instead.)
    """
    return given_steps(q, np.ones_like(q.S))


def most(q: Problem) -> Allocation:
    """(c) As many steps as budget and deadline allow, with the best f and p of problem (5) for them."""
    who, able = _able(q)
    tau = _peak(able)
    k = _at_least_one(lemma_1(able, _frequency(able, tau), _upload_power(able, tau)))
    return _answer(q, who, *_along_deadline(able, k, tau))


def given_steps(q: Problem, k: Floats) -> Allocation:
    """The best f and p of problem (5) for these steps."""
    who, able = _able(q)
    return _answer(q, who, *_along_deadline(able, k[who], _peak(able)))


def _along_deadline(q: Problem, k: Floats, inside: Floats) -> tuple[Floats, Floats, Floats]:
    """Search the feasible upload times for k steps: first on a grid, then by golden sections around the best.

    `inside` is an upload time that is feasible for k if any is.
    """
    low = q.S / rate(q, q.p_max)
    high = np.maximum(q.t_th - q.C * k / q.f_max, inside)

    def affordable(tau: Floats) -> Bools:
        f, p = _point(q, k, tau)
        return np.asarray(0.5 * q.v * q.C * k * f**2 + p * tau <= q.e_bd)

    def value(tau: Floats) -> Floats:
        f, p = _point(q, k, tau)  # R(p) = S / tau
        return q.eps * k / (0.5 * q.v * q.C * f**2) + (1 - q.eps) * q.S / (tau * p)

    low, high = _border(affordable, low, inside), _border(affordable, high, inside)
    places, rows = low + (high - low) * np.linspace(0, 1, GRID)[:, None], np.arange(len(k))
    best = value(places).argmax(axis=0)
    left, right = np.maximum(best - 1, 0), np.minimum(best + 1, GRID - 1)
    tau = _golden(value, places[left, rows], places[right, rows], sections=28)
    ends = np.stack([low, tau, high])
    tau = ends[value(ends).argmax(axis=0), rows]
    return (k, *_point(q, k, tau))


def _point(q: Problem, k: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """The f and p of an upload that takes tau, when the rest of the time is used for computing."""
    return q.C * k / np.maximum(q.t_th - tau, q.C * k / q.f_max), _upload_power(q, tau)


def _upload_power(q: Problem, tau: Floats) -> Floats:
    return np.minimum(at_rate(q, q.S / tau), q.p_max)


def _peak(q: Problem) -> Floats:
    """The upload time that allows the most steps; it lies in the feasible interval of every feasible k."""

    def steps(tau: Floats) -> Floats:
        left = q.e_bd - tau * _upload_power(q, tau)
        f = _frequency(q, tau, left)
        return np.minimum(left / (0.5 * q.v * q.C * f**2), f * (q.t_th - tau) / q.C)

    return _golden(steps, q.S / rate(q, q.p_max), q.t_th)


def _frequency(q: Problem, tau: Floats, left: Floats | None = None) -> Floats:
    """The frequency that allows the most steps, given tau and the energy `left` for computing.

    The steps that the budget allows fall with f^2, those that the deadline allows rise with f; both are
    equal at f^3 = left / (0.5 v (t_th - tau)).
    """
    left = q.e_bd - tau * _upload_power(q, tau) if left is None else left
    meet = np.cbrt(np.maximum(left, 0) / (0.5 * q.v * np.maximum(q.t_th - tau, 1e-300)))
    return np.clip(meet, 1e-6 * q.f_max, q.f_max)


def _golden(
    value: Callable[[Floats], Floats], low: Floats, high: Floats, sections: int = 48
) -> Floats:
    """The place of the maximum of a function with one peak, within 0.618^sections of the interval."""
    x, y = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_x, at_y = value(x), value(y)
    for _ in range(sections):
        left = at_x >= at_y
        low, high = np.where(left, low, x), np.where(left, y, high)
        step = GOLDEN * (high - low)
        new = np.where(left, high - step, low + step)
        at_new = value(new)
        x, y = np.where(left, new, y), np.where(left, x, new)
        at_x, at_y = np.where(left, at_new, at_y), np.where(left, at_x, at_new)
    return (low + high) / 2


def _border(
    holds: Callable[[Floats], Bools], outside: Floats, inside: Floats, halvings: int = 40
) -> Floats:
    """The place nearest to `outside` where `holds` is true, by bisection; it is true at `inside`."""
    there = holds(outside)
    inside = np.where(there, outside, inside)
    for _ in range(0 if there.all() else halvings):
        middle = (outside + inside) / 2
        good = holds(middle)
        inside, outside = np.where(good, middle, inside), np.where(good, outside, middle)
    return inside


def _at_least_one(k: Floats) -> Floats:
    return np.maximum(k, 1.0)  # if not even one step is feasible, _answer finds out


def _able(q: Problem) -> tuple[NDArray[np.int64], Problem]:
    """The clients that could upload in time and have energy, and their part of the problem."""
    able = (q.kappa >= 1) & (q.e_bd > 0) & (q.t_th > 0)
    able &= q.t_th * rate(q, q.p_max) > q.S
    who = np.flatnonzero(able)
    return who, Problem(*(part[who] for part in q))


def _answer(q: Problem, who: NDArray[np.int64], k: Floats, f: Floats, p: Floats) -> Allocation:
    """The allocation of all clients: what was found for the clients `who`, if it is feasible."""
    good = feasible(Problem(*(part[who] for part in q)), k, f, p)
    found = np.zeros((3, len(q.S)))
    found[:, who[good]] = np.stack([k, f, p])[:, good]
    return Allocation(found[0].astype(np.int64), found[1], found[2])
