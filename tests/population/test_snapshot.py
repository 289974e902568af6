"""FAST: its two ends, its share of snapshots, Algorithm 2 by hand, and snapshots that ask for more."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.config import build, convert
from fedtide.core.errors import ConfigError
from fedtide.core.types import Round
from fedtide.population.laws import Beta, Gamma, Weibull
from fedtide.population.presence import Bernoulli, Cyclic, Diurnal, Markov
from fedtide.population.process import Participation
from fedtide.population.snapshot import Fast, Who
from fedtide.population.uniform import Full, Regularised, Uniform
from tests.population.crowds import cohorts, crowd, session, shares

INNER = [Full(), Uniform(clients=7), Regularised(rate=0.2), Beta(), Gamma(), Weibull()]
INNER += [Bernoulli(), Markov(), Cyclic(clients=3), Diurnal()]


@pytest.mark.parametrize("inner", INNER, ids=lambda process: type(process).__name__)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_q_0_is_the_inner_process(inner, seed):
    """Bit for bit, and the inner process goes on living: Markov chains move in every round."""
    assert cohorts(Fast(of=inner, q=0.0), 40, seed=seed) == cohorts(inner, 40, seed=seed)


@pytest.mark.parametrize("inner", INNER, ids=lambda process: type(process).__name__)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_q_1_is_uniform(inner, seed):
    alone = cohorts(Uniform(rate=0.1), 40, seed=seed)
    assert cohorts(Fast(of=inner, q=1.0), 40, seed=seed) == alone
    assert cohorts(Fast(of=inner, q=1.0, rate=0.1), 40, seed=seed) == alone
    assert cohorts(Fast(of=inner, q=1.0, clients=10), 40, seed=seed) == alone


def test_the_inner_process_goes_on_during_snapshots():
    """Between snapshots FAST shows what the inner process would have shown in those rounds."""
    fast, inner = Fast(of=Markov(rate=0.3), q=0.5), Markov(rate=0.3)
    mixed, pure = cohorts(fast, 60), cohorts(inner, 60)
    who = fast.start(crowd(), 0)
    arbitrary = [t for t in range(60) if not fast.is_snapshot(who, t, 0)]
    assert 15 < len(arbitrary) < 45
    assert all(mixed[t] == pure[t] for t in arbitrary)


@pytest.mark.parametrize("q", [0.1, 0.5])
def test_the_share_of_snapshots(q):
    """Within four standard errors of q, and the rounds are independent of the inner process."""
    fast = Fast(q=q)
    who, rounds = fast.start(crowd(), 0), 2000
    coins = np.array([fast.is_snapshot(who, t, 0) for t in range(rounds)])
    assert abs(coins.mean() - q) < 4 * np.sqrt(q * (1 - q) / rounds)
    assert abs(np.corrcoef(coins[1:], coins[:-1])[0, 1]) < 4 / np.sqrt(rounds)


def test_intervals():
    """r % I == 0, the form of Algorithm 1."""
    fast = Fast(of=Cyclic(groups=2), interval=3, clients=1)
    sizes = [len(ids) for ids in cohorts(fast, 7, session(20))]
    assert sizes == [1, 10, 10, 1, 10, 10, 1]
    assert fast.start(crowd(), 0).q == 1 / 3


def test_snapshots_reach_everybody():
    seen = shares(cohorts(Fast(of=Gamma(), q=0.3), 1000))
    assert (seen > 0).all()
    assert (shares(cohorts(Gamma(), 1000)) > 0).sum() < 40


def test_adaptive_by_hand():
    """lambda = 2 and training accuracies 0.5, 0.3, 0.4, 0.1, nothing, 0.1, 0.9.

    Delta = 0:   q = max(0, 0 + 2 (0 - 0.5)) = 0
    0.5 -> 0.3:  q = 0 + 2 * 0.2 = 0.4
    0.3 -> 0.4:  q = 0.4 - 2 * 0.1 = 0.2
    0.4 -> 0.1:  q = 0.2 + 2 * 0.3 = 0.8
    no cohort:   nothing changes
    0.1 -> 0.1:  q = 0.8
    0.1 -> 0.9:  q = max(0, 0.8 - 1.6) = 0
    """
    fast, none = Fast(adaptive=True, lambda_=2.0), np.empty(0, dtype=int)
    who, path = fast.start(crowd(), 0), []
    for t, accuracy in enumerate([0.5, 0.3, 0.4, 0.1, None, 0.1, 0.9]):
        who = fast.observe(who, Round(t, none, {"train_accuracy": accuracy}))
        path.append(who.q)
    assert path == pytest.approx([0, 0.4, 0.2, 0.8, 0.8, 0.8, 0])


def test_q_never_leaves_its_bounds():
    fast = Fast(adaptive=True, lambda_=100.0)
    rise = fast.observe(Who(None, 0.5, 0.2), Round(0, None, {"train_accuracy": 0.9}))
    fall = fast.observe(Who(None, 0.5, 0.9), Round(0, None, {"train_accuracy": 0.2}))
    assert (rise.q, fall.q) == (0.0, 1.0)


def test_adaptive_begins_without_snapshots():
    fast = Fast(of=Cyclic(groups=4), adaptive=True, lambda_=7.0)
    rising = cohorts(fast, 30, accuracy=lambda t, ids: t / 30)
    assert rising == cohorts(Cyclic(groups=4), 30)


def test_what_the_journal_hears():
    fast, people = Fast(of=Cyclic(groups=4), interval=2, oversample=1.3, wait=2.0), session()
    who = fast.start(crowd(), 0)
    assert fast.facts(who, 0, people, 0) == {
        "snapshot": True,
        "q": 0.5,
        "asked": 13,
        "hoped": 10,
        "wait": 2.0,
    }
    assert fast.facts(who, 1, people, 0) == {"snapshot": False, "q": 0.5, "available": 25}


def test_over_sampling_keeps_as_many_as_needed():
    """13 are asked, each stays away with probability 0.116, the first 10 to answer take part."""
    drawn = cohorts(Fast(q=1.0, oversample=1.3, dropout=0.116), 2000)
    sizes = np.array([len(ids) for ids in drawn])
    assert sizes.max() == 10
    # 13 answers ~ Binomial(13, 0.884): P(fewer than 10) = 0.0554
    assert (sizes < 10).mean() == pytest.approx(0.0554, abs=0.02)
    assert all(ids == sorted(set(ids)) for ids in drawn)
    assert shares(drawn) == pytest.approx(np.full(100, 0.01), abs=0.004)


def test_over_sampling_alone_is_still_uniform():
    drawn = cohorts(Fast(q=1.0, oversample=1.3), 2000)
    assert {len(ids) for ids in drawn} == {10}
    assert shares(drawn) == pytest.approx(np.full(100, 0.01), abs=0.004)


def test_nobody_is_asked_twice():
    (ids,) = cohorts(Fast(of=Full(), q=1.0, clients=10, oversample=1.3), 1, session(11))
    assert len(ids) == 10


def test_in_a_study_file():
    table = {
        "kind": "fast",
        "of": {"kind": "beta", "preset": "2023-12"},
        "adaptive": True,
        "lambda": 7,
    }
    fast = convert(Participation, table, "participation")
    assert fast == Fast(of=Beta(preset="2023-12"), adaptive=True, lambda_=7.0)
    assert build(Fast, {"of": "gamma", "q": 0.3}, "participation") == Fast(of=Gamma(), q=0.3)


def test_both_processes_are_checked():
    with pytest.raises(ConfigError, match="at most the 5 clients"):
        Fast(of=Full(), clients=6).check(session(5))
    with pytest.raises(ConfigError, match="at most the 5 clients"):
        Fast(of=Uniform(clients=6), clients=2).check(session(5))
