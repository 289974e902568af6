"""How many steps, at which frequency, with which power? Problem (5) of OSAFL, for all clients at once.

Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the Resource Constraints in Wireless
Networks", section II-C and Appendix B:

    max   eps k / (0.5 v C f^2)  +  (1 - eps) w log2(1 + g p) / p                                     (5)
    s.t.  1 <= k <= kappa,  p <= p_max,  f <= f_max,
          0.5 v C k f^2 + p S / R(p) <= e_bd,    C k / f + S / R(p) <= t_th,    R(p) = w log2(1 + g p)

Both terms fall as f and p grow, and so does what a client may spend: at the optimum the deadline is tight,
and one number is left to choose, the time tau that the upload takes. Along the deadline

    p = (2^(S / (w tau)) - 1) / g,    f = C k / (t_th - tau),

and the energy is convex in tau, so the feasible tau of each k form an interval that shrinks as k grows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NARROW = 48  # golden sections: 0.618^48 = 1e-10 of the interval
GRID = 48  # places along the deadline that are looked at before the best is refined
GOLDEN = (np.sqrt(5) - 1) / 2
SLACK = 1e-9  # relative: what rounding may add to a limit


class Problem(NamedTuple):
    """Problem (5) of many clients, [U] each, SI units."""

    kappa: Floats  # most local steps
    C: Floats  # n n_bar c_u s_u: cycles per step
    v: Floats  # effective capacitance
    S: Floats  # N (FPP + 1): bits to send
    w: Floats  # omega: bandwidth
    g: Floats  # Xi Gamma / (omega xi^2): signal over noise per watt
    f_max: Floats
    p_max: Floats
    e_bd: Floats  # energy budget, may be infinite
    t_th: Floats  # deadline
    eps: Floats  # epsilon: what computing counts beside sending


class Allocation(NamedTuple):
    """What each client does; zeros where no feasible point exists."""

    k: NDArray[np.int64]  # local steps
    f: Floats  # hertz
    p: Floats  # watts


def rate(q: Problem, p: Floats) -> Floats:
    """R(p)."""
    return np.asarray(q.w * np.log2(1 + q.g * p))


def objective(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """(5)."""
    computing = k / (0.5 * q.v * q.C * f**2)
    return q.eps * computing + (1 - q.eps) * rate(q, p) / p


def energy(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """The left side of (5d)."""
    return 0.5 * q.v * q.C * k * f**2 + p * q.S / rate(q, p)


def time(q: Problem, k: Floats, f: Floats, p: Floats) -> Floats:
    """The left side of (5e)."""
    return q.C * k / f + q.S / rate(q, p)


def feasible(q: Problem, k: Floats, f: Floats, p: Floats, slack: float = SLACK) -> Bools:
    """(5a) to (5e), for a client that takes part."""
    more = 1 + slack
    inside = (k >= 1) & (k <= q.kappa) & (f > 0) & (p > 0)
    inside &= (f <= q.f_max * more) & (p <= q.p_max * more)
    return np.asarray(
        inside & (energy(q, k, f, p) <= q.e_bd * more) & (time(q, k, f, p) <= q.t_th * more)
    )


def alternating(q: Problem, sweeps: int = 50, precision: float = 1e-9) -> Allocation:
    """(a) Algorithm 1: Lemma 1 for k, Lemma 2 for f, Algorithm 3 for p, until nothing moves.

    The paper leaves its first point open. Ours allows the most steps; from any point at which some
    client has no feasible k, that client would not start, although another point serves it. Steps are
    whole numbers: Lemma 1's are rounded down. Lemma 2 makes the deadline tight, so Algorithm 3 finds no
    lower power than the one it is given: the first point decides p, and one sweep decides everything.
    """
    able, q = _possible(q)
    f, p = _most_steps(q)
    k = np.zeros_like(f)
    for _ in range(sweeps):
        k = np.maximum(lemma_1(q, f, p), 1.0)
        before, f = f, np.minimum(lemma_2(q, k, p), q.f_max)
        moved, p = p, algorithm_3(q, k, f, p, precision=precision)
        if np.all(abs(f - before) <= precision * f) and np.all(abs(p - moved) <= precision * p):
            break
    return _checked(q, able, k, f, p)


def lemma_1(q: Problem, f: Floats, p: Floats) -> Floats:
    """Eq. 7, rounded down: the most steps within budget and deadline, given f and p."""
    by_energy = (q.e_bd - p * q.S / rate(q, p)) / (0.5 * q.v * q.C * f**2)
    by_time = f * (q.t_th - q.S / rate(q, p)) / q.C
    steps: Floats = np.floor(np.minimum(q.kappa, np.minimum(by_energy, by_time)) * (1 + SLACK))
    return steps


def lemma_2(q: Problem, k: Floats, p: Floats) -> Floats:
    """Eq. 9: the slowest processor that keeps the deadline, given k and p."""
    return q.C * k / (q.t_th - q.S / rate(q, p))


def algorithm_3(
    q: Problem, k: Floats, f: Floats, p: Floats, rounds: int = 50, precision: float = 1e-9
) -> Floats:
    """Successive convex approximation of the power, given k and f."""
    for _ in range(rounds):
        before, p = p, power(q, k, f, p)
        if np.all(abs(p - before) <= precision * p):
            break
    return p


def power(q: Problem, k: Floats, f: Floats, p_j: Floats) -> Floats:
    """Eq. 52: both curves replaced by their tangents at p_j, a linear problem in one variable.

    Its optimum is an end of the feasible interval: the lower end, as the tangent of log(1 + g p) / p falls
    everywhere. Where the interval is empty p_j stays.
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
    """The power that sends this fast."""
    return np.asarray(np.expm1(np.log(2) * np.minimum(bits_per_second / q.w, 1000.0)) / q.g)


def exact(q: Problem) -> Allocation:
    """(b) The optimum of problem (5).

    For one tau the first term of (5) is eps (t_th - tau)^2 / (0.5 v k C^3): it falls with k, as does the
    room for tau, so the optimum makes a single step. (The objective rewards slow processors more than
    steps; `most` is for those who want steps.)
    """
    able, q = _possible(q)
    return _along_deadline(q, able, np.ones_like(q.S))


def most(q: Problem) -> Allocation:
    """As many steps as budget and deadline allow; among those, the best f and p of problem (5)."""
    able, q = _possible(q)
    f, p = _most_steps(q)
    return _along_deadline(q, able, np.maximum(lemma_1(q, f, p), 1.0))


def given_steps(q: Problem, k: Floats) -> Allocation:
    """The best f and p for these steps."""
    able, q = _possible(q)
    return _along_deadline(q, able, k)


def _along_deadline(q: Problem, able: Bools, k: Floats) -> Allocation:
    """Search the feasible upload times of k steps: a grid, then golden sections around its best place."""
    low, high = _window(q, k)
    place = low + (high - low) * np.linspace(0, 1, GRID)[:, None]
    best = _value(q, k, place).argmax(axis=0)
    rows = np.arange(len(k))
    left, right = place[np.maximum(best - 1, 0), rows], place[np.minimum(best + 1, GRID - 1), rows]
    tau = _golden(lambda tau: _value(q, k, tau), left, right)
    ends = np.stack([low, tau, high])
    tau = ends[_value(q, k, ends).argmax(axis=0), rows]
    return _checked(q, able, k, *_point(q, k, tau))


def _window(q: Problem, k: Floats) -> tuple[Floats, Floats]:
    """The upload times that k steps allow: power and frequency bound them, then the energy."""
    low, high = _bounds(q, k)

    def spent(tau: Floats) -> Floats:
        f, p = _point(q, k, tau)
        return 0.5 * q.v * q.C * k * f**2 + p * tau

    middle = _golden(lambda tau: -spent(tau), low, high)  # the least energy: convex
    return (
        _border(lambda tau: spent(tau) <= q.e_bd, low, middle),
        _border(lambda tau: spent(tau) <= q.e_bd, high, middle),
    )


def _bounds(q: Problem, k: Floats) -> tuple[Floats, Floats]:
    low = q.S / rate(q, q.p_max)
    return low, np.maximum(q.t_th - q.C * k / q.f_max, low)


def _point(q: Problem, k: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """F and p when the upload takes tau and the rest of the time is for computing."""
    return q.C * k / np.maximum(q.t_th - tau, q.C * k / q.f_max), _upload_power(q, tau)


def _upload_power(q: Problem, tau: Floats) -> Floats:
    return np.minimum(at_rate(q, q.S / tau), q.p_max)


def _value(q: Problem, k: Floats, tau: Floats) -> Floats:
    """(5) along the deadline, where R(p) = S / tau."""
    f, p = _point(q, k, tau)
    return q.eps * k / (0.5 * q.v * q.C * f**2) + (1 - q.eps) * q.S / (tau * p)


def _most_steps(q: Problem) -> tuple[Floats, Floats]:
    """The f and p that allow the most steps.

    Given tau, steps within the budget fall with f^2 and steps within the deadline rise with f: they meet
    where f^3 = (e_bd - e_up) / (0.5 v (t_th - tau)). The steps have one peak in tau (see the window above).
    """

    def frequency(tau: Floats) -> Floats:
        left = np.maximum(q.e_bd - tau * _upload_power(q, tau), 0)
        rest = np.maximum(q.t_th - tau, 1e-300)
        return np.clip(np.cbrt(left / (0.5 * q.v * rest)), 1e-6 * q.f_max, q.f_max)

    def steps(tau: Floats) -> Floats:
        f = frequency(tau)
        by_energy = (q.e_bd - tau * _upload_power(q, tau)) / (0.5 * q.v * q.C * f**2)
        return np.minimum(by_energy, f * (q.t_th - tau) / q.C)

    low = q.S / rate(q, q.p_max)
    tau = _golden(steps, low, q.t_th)
    return frequency(tau), _upload_power(q, tau)


def _golden(value: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Where a function with one peak is highest, by golden sections."""
    x, y = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_x, at_y = value(x), value(y)
    for _ in range(NARROW):
        left = at_x >= at_y
        low, high = np.where(left, low, x), np.where(left, y, high)
        step = GOLDEN * (high - low)
        new = np.where(left, high - step, low + step)
        at_new = value(new)
        x, y = np.where(left, new, y), np.where(left, x, new)
        at_x, at_y = np.where(left, at_new, at_y), np.where(left, at_x, at_new)
    return (low + high) / 2


def _border(holds: Callable[[Floats], Bools], outside: Floats, inside: Floats) -> Floats:
    """Between a place where it may not hold and one where it does, the outermost where it holds."""
    there = holds(outside)
    inside = np.where(there, outside, inside)
    for _ in range(0 if there.all() else NARROW):
        middle = (outside + inside) / 2
        good = holds(middle)
        inside, outside = np.where(good, middle, inside), np.where(good, outside, middle)
    return inside


def _possible(q: Problem) -> tuple[Bools, Problem]:
    """Who has a signal, time and energy at all; the others get harmless numbers to compute with."""
    able = (q.kappa >= 1) & (q.e_bd > 0) & (q.g > 0) & (q.p_max > 0) & (q.t_th > 0)
    fastest = rate(q, np.where(able, q.p_max, 0.0))
    able &= q.t_th * fastest > q.S
    harmless = dict.fromkeys(Problem._fields, 1.0) | {"t_th": 4.0}
    safe = {name: np.where(able, getattr(q, name), other) for name, other in harmless.items()}
    return able, q._replace(**safe)


def _checked(q: Problem, able: Bools, k: Floats, f: Floats, p: Floats) -> Allocation:
    good = able & feasible(q, k, f, p)
    return Allocation(
        np.where(good, k, 0).astype(np.int64), np.where(good, f, 0), np.where(good, p, 0)
    )
