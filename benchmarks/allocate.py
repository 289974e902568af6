"""How fast is problem (5) of OSAFL solved? 100 clients x 100 rounds, beside CVXPY on the same problems.

CVXPY solves the power subproblem (Eq. 52) of a sample of clients, as the paper does inside its Algorithm 3:
once per client and iteration. We count one iteration for it, and the whole alternation for us. The problem
is compiled once with parameters (DPP), the fastest way CVXPY offers. Times are those of
the processor, so that a busy machine counts the same for both; ratios are taken within one run.

    .venv/bin/python benchmarks/allocate.py
"""

import statistics
import time

import cvxpy
import numpy as np

from fedtide.network.allocate import Problem, alternating, exact, most
from fedtide.network.channel import Moment, Uma

CLIENTS, ROUNDS, SAMPLE, REPETITIONS = 100, 100, 200, 5


def fleet() -> Problem:
    """The clients of the paper's section V, in a cell of 800 m, with a payload of a million parameters."""
    count = CLIENTS * ROUNDS
    draw, ids = np.random.default_rng(0), np.arange(CLIENTS)
    channel = Uma(carrier_ghz=2.4, radius_m=800, sight="mixed", shadow="round", fading="none")
    band = np.full(CLIENTS, 540e3)
    gains = [channel.per_watt(band, ids, Moment(0, t, 0.0)) for t in range(ROUNDS)]
    return Problem(
        kappa=np.full(count, 5.0),
        C=160 * draw.uniform(25, 40, count) * 101_376,
        v=np.full(count, 2e-28),
        S=np.full(count, 33e6),
        w=np.full(count, 540e3),
        g=np.concatenate(gains),
        f_max=draw.uniform(1e9, 1.8e9, count),
        p_max=1e-3 * 10 ** draw.uniform(2, 3, count),
        e_bd=draw.uniform(1.2, 2.5, count),
        t_th=np.full(count, 200.0),
        eps=np.full(count, 0.5),
    )


def timed(call) -> float:
    """The median of several runs."""
    seconds = []
    for _ in range(REPETITIONS):
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def cvxpy_seconds(q: Problem) -> float:
    """For all problems, from a sample: one subproblem each."""
    p = cvxpy.Variable()
    slope, rise, left, most_, least = (cvxpy.Parameter() for _ in range(5))
    limits = [p <= most_, p >= least, rise * p <= left]
    problem = cvxpy.Problem(cvxpy.Maximize(slope * p), limits)
    found = alternating(q)
    sample = np.flatnonzero(found.k)[:SAMPLE]
    begin = time.process_time()
    for u in sample:
        g, p_j, k, f = q.g[u], found.p[u], found.k[u], found.f[u]
        log = np.log1p(g * p_j)
        slope.value = g / (p_j * (1 + g * p_j)) - log / p_j**2
        rise.value = 1 / log - g * p_j / (log**2 * (1 + g * p_j))
        spent = 0.5 * q.v[u] * q.C[u] * k * f**2
        left.value = (
            (q.e_bd[u] - spent) * q.w[u] / (q.S[u] * np.log(2)) - p_j / log + rise.value * p_j
        )
        most_.value = q.p_max[u]
        least.value = (2 ** (q.S[u] / (q.w[u] * (q.t_th[u] - q.C[u] * k / f))) - 1) / g
        problem.solve(solver=cvxpy.CLARABEL)
    return (time.process_time() - begin) / len(sample) * len(q.C)


def main() -> None:
    q = fleet()
    alternating(q)
    theirs = cvxpy_seconds(q)
    print(f"{CLIENTS} clients x {ROUNDS} rounds = {len(q.C):,} problems")
    print(f"{'CVXPY, Eq. 52 once':>20} {theirs:9.3f} s")
    for policy in (alternating, exact, most):
        ours, found = timed(lambda policy=policy: policy(q)), policy(q)
        share, steps = 100 * (found.k > 0).mean(), found.k[found.k > 0].mean()
        print(
            f"{policy.__name__:>20} {ours:9.3f} s {theirs / ours:8.0f} times faster"
            f" {share:6.1f} % take part, {steps:.2f} steps each"
        )


if __name__ == "__main__":
    main()
