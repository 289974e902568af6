"""Problem (5) of OSAFL: closed forms beside CVXPY, optima beside grids, laws over drawn fleets."""

import warnings

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.network.allocate import (
    Problem,
    algorithm_3,
    alternating,
    energy,
    exact,
    feasible,
    given_steps,
    lemma_1,
    lemma_2,
    most,
    objective,
    power,
    rate,
    time,
)

POLICIES = [alternating, exact, most]


def fleet(clients=200, seed=0, **changes):
    """Clients around the paper's numbers; some of them cannot afford a single step."""
    draw = np.random.default_rng(seed)
    values = {
        "kappa": np.full(clients, 5.0),
        "C": 160 * draw.uniform(25, 40, clients) * 101_376,
        "v": np.full(clients, 2e-28),
        "S": np.full(clients, 33e6),
        "w": np.full(clients, 540e3),
        "g": 10 ** draw.uniform(-1.5, 4, clients),
        "f_max": draw.uniform(1e9, 1.8e9, clients),
        "p_max": 1e-3 * 10 ** draw.uniform(2, 3, clients),
        "e_bd": draw.uniform(1.2, 2.5, clients),
        "t_th": np.full(clients, 200.0),
        "eps": np.full(clients, 0.5),
    }
    return Problem(**{**values, **{k: np.broadcast_to(v, clients) for k, v in changes.items()}})


def of(q, index):
    return Problem(*(np.asarray(field)[index] for field in q))


def test_one_client_by_hand():
    """C = 1e9, f = 1e9, R = 1e6 log2(1 + 3 x 1) = 2e6, S = 4e6: one second a step, two to send.

    Deadline 6 s: four steps of one second. Budget 5 J: sending takes 2 J, a step 0.5 x 2e-27 x 1e9 x 1e18
    = 1 J, so three steps; the slowest processor for three is 3e9 cycles in 4 s = 0.75 GHz.
    """
    q = fleet(1, C=1e9, v=2e-27, S=4e6, w=1e6, g=3.0, f_max=1e9, p_max=1.0, e_bd=5.0, t_th=6.0)
    f, p = np.array([1e9]), np.array([1.0])
    assert rate(q, p) == pytest.approx([2e6])
    assert energy(q, np.array([3.0]), f, p) == pytest.approx([5.0])
    assert time(q, np.array([3.0]), f, p) == pytest.approx([5.0])
    assert lemma_1(q, f, p).tolist() == [3.0]
    assert lemma_1(q._replace(e_bd=np.array([99.0])), f, p).tolist() == [4.0]
    assert lemma_2(q, np.array([3.0]), p) == pytest.approx([0.75e9])
    # 0.5 x 3 / (1 x 1e9 x 1e18 x 2e-27) = 0.75, and 0.5 x 2e6 / 1 W.
    expected = 0.5 * 3 / (0.5 * 2e-27 * 1e9 * 1e18) + 0.5 * 2e6
    assert objective(q, np.array([3.0]), f, p) == pytest.approx([expected])


def cvx_power(q, k, f, p_j):
    """Eq. 52 for one client, by CVXPY."""
    log = np.log1p(q.g * p_j)
    p = cvxpy.Variable()
    tangent = log / p_j + (q.g / (p_j * (1 + q.g * p_j)) - log / p_j**2) * (p - p_j)
    slope = 1 / log - q.g * p_j / (log**2 * (1 + q.g * p_j))
    spent = q.S * np.log(2) / q.w * (p_j / log + slope * (p - p_j))
    least = (2 ** (q.S / (q.w * (q.t_th - q.C * k / f))) - 1) / q.g
    limits = [p <= q.p_max, 0.5 * q.v * q.C * k * f**2 + spent <= q.e_bd, p >= least]
    problem = cvxpy.Problem(cvxpy.Maximize(tangent), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cvxpy.CLARABEL)
    return float(p.value) if problem.status == "optimal" else None


def test_the_closed_form_equals_cvxpy():
    q = fleet(40, seed=3, g=10 ** np.linspace(-0.5, 3, 40))
    k, f, p_j = np.full(40, 2.0), q.f_max, 0.7 * q.p_max
    ours = power(q, k, f, p_j)
    theirs = [cvx_power(of(q, u), k[u], f[u], p_j[u]) for u in range(40)]
    solved = [u for u in range(40) if theirs[u] is not None]
    assert 10 < len(solved) < 40
    for u in range(40):
        expected = theirs[u] if u in solved else p_j[u]  # no feasible point: it stays
        assert ours[u] == pytest.approx(expected, rel=1e-4)


def test_algorithm_3_ends_at_the_least_power():
    q = fleet(50, g=10 ** np.linspace(2, 4, 50), e_bd=50.0)
    k, f = np.ones(50), q.f_max
    p = algorithm_3(q, k, f, q.p_max / 2)
    assert time(q, k, f, p) == pytest.approx(np.full(50, 200.0))


@pytest.mark.parametrize("policy", POLICIES)
def test_always_feasible_and_never_blind(policy):
    q = fleet(2000, seed=1)
    found = policy(q)
    takes = found.k > 0
    assert feasible(of(q, takes), found.k[takes], found.f[takes], found.p[takes]).all()
    assert 0 < takes.sum() < 2000
    assert (takes == (most(q).k > 0)).all()


def test_exact_is_never_worse():
    q = fleet(100, seed=2)
    best = exact(q)
    takes = best.k > 0
    q, best = of(q, takes), [part[takes] for part in best]
    value = objective(q, *best)
    for other in (
        alternating(q),
        most(q),
        *(given_steps(q, np.full(len(q.C), n)) for n in (1.0, 2, 5)),
    ):
        fits = other.k > 0
        theirs = objective(of(q, fits), other.k[fits], other.f[fits], other.p[fits])
        assert (value[fits] >= theirs * (1 - 1e-9)).all()
    # A grid over frequency, power and steps at once.
    f, p = np.meshgrid(np.geomspace(1e-3, 1, 150), np.geomspace(1e-5, 1, 150))
    for u in range(0, len(q.C), 7):
        one = of(q, u)
        for k in (1.0, 3.0, 5.0):
            good = feasible(one, k, f * one.f_max, p * one.p_max, slack=0.0)
            values = objective(one, k, f * one.f_max, p * one.p_max)
            assert value[u] >= np.max(values[good], initial=0.0) * (1 - 1e-9)


def test_most_steps_beside_trying_each():
    q = fleet(500, seed=5, kappa=40.0)
    found = most(q).k
    tried = np.zeros(500, dtype=int)
    for steps in range(1, 41):
        tried[given_steps(q, np.full(500, float(steps))).k > 0] = steps
    assert (found == tried).all()
    assert (alternating(q).k == tried).all()
    assert len(set(tried)) > 5


numbers = st.floats(-1, 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), numbers, numbers, numbers, numbers)
def test_drawn_fleets(seed, load, payload, budget, deadline):
    """For any fleet: allocations are feasible, and a client with a feasible point gets one."""
    base = fleet(30, seed=seed)
    q = base._replace(
        C=base.C * 100**load,
        S=base.S * 100**payload,
        e_bd=base.e_bd * 100**budget,
        t_th=base.t_th * 100**deadline,
        g=np.where(np.arange(30) == 0, 0.0, base.g),
    )
    low = q.S / rate(q._replace(g=np.maximum(q.g, 1e-9)), q.p_max)
    tau = low + np.maximum(q.t_th - low, 0) * np.linspace(0, 1, 2000)[1:-1, None]
    f = q.C / np.maximum(q.t_th - tau, 1e-12)
    p = np.expm1(np.minimum(np.log(2) * q.S / (q.w * tau), 500)) / np.maximum(q.g, 1e-9)
    exists = (feasible(q._replace(g=np.maximum(q.g, 1e-9)), 1.0, f, p, slack=-1e-6)).any(axis=0)
    exists &= q.g > 0
    for policy in POLICIES:
        k, f, p = policy(q)
        takes = k > 0
        assert feasible(of(q, takes), k[takes], f[takes], p[takes]).all()
        assert (takes | ~exists).all()


def test_no_budget_no_limit():
    q = fleet(20, e_bd=np.inf)
    for policy in POLICIES:
        assert (policy(q).k > 0).sum() >= (policy(fleet(20)).k > 0).sum()


def test_one_sweep_decides():
    q = fleet(300, seed=8)
    for once, often in zip(alternating(q, sweeps=1), alternating(q), strict=True):
        assert once == pytest.approx(often)
