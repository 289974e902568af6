"""Processes of presence: the rates they claim, over long runs and by label."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError
from fedtide.core.types import Round
from fedtide.population.participation import PARTICIPATION
from fedtide.population.presence import Bernoulli, Cyclic, Diurnal, Markov
from fedtide.population.uniform import Regularised
from tests.population.crowds import cohorts, crowd, session, shares

ROUNDS = 4000
NEED_SETTINGS = ("uniform", "regularised", "trace", "phones")


def presence(process, rounds=ROUNDS, people=None, seed=0, labels=None):
    """[rounds, clients]: who was there."""
    people = people or session(20)
    who = process.start(crowd(len(people.clients), labels), seed)
    there = []
    for t in range(rounds):
        there.append(process.present(who, t, people, seed))
        who = process.observe(who, Round(t, people.clients, {"train_accuracy": 0.5}))
    return np.array(there)


def test_bernoulli_rates():
    """Each client is there its own share of the rounds, four standard errors or less from it."""
    rates = tuple(np.linspace(0, 1, 20))
    there = presence(Bernoulli(rates=rates))
    error = 4 * np.sqrt(np.array(rates) * (1 - np.array(rates)) / ROUNDS)
    assert (np.abs(there.mean(0) - rates) <= error).all()
    assert not there[:, 0].any()
    assert there[:, -1].all()


def test_bernoulli_coins_are_independent():
    there = presence(Bernoulli(rate=0.5), people=session(2)).astype(float)
    assert abs(np.corrcoef(there.T)[0, 1]) < 4 / np.sqrt(ROUNDS)
    assert abs(np.corrcoef(there[1:, 0], there[:-1, 0])[0, 1]) < 4 / np.sqrt(ROUNDS)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_markov_rates_and_stays(p):
    """Share p of all rounds; a stay lasts 1 / change rounds if p <= 1/2, else p / (1 - p) times that."""
    there = presence(Markov(rate=p, change=0.2), people=session(60))
    assert there.mean() == pytest.approx(p, abs=0.02)
    left = there[:-1] & ~there[1:]
    expected = 0.2 * min(1, (1 - p) / p)
    assert left.sum() / there[:-1].sum() == pytest.approx(expected, rel=0.1)


def test_markov_begins_in_the_long_run():
    first = [presence(Markov(rate=0.3), 1, session(100), seed).mean() for seed in range(30)]
    assert np.mean(first) == pytest.approx(0.3, abs=0.04)


def test_markov_at_the_edges():
    """p = 0 is never there, p = 1 always; nothing divides by zero."""
    there = presence(Markov(rates=(0.0, 1.0)), 200, session(2))
    assert not there[:, 0].any()
    assert there[:, 1].all()


def test_rates_follow_labels():
    """p = rate C <psi, shares>: clients of the same label have one rate, and the labels' mean is `rate`."""
    labels = np.repeat(np.eye(10, dtype=int), 10, axis=0) * 60
    process = Bernoulli(rate=0.1, label_alpha=0.1, minimum=0.0)
    p = process.start(crowd(100, labels), 3).p.reshape(10, 10)
    assert (p == p[:, :1]).all()
    assert p[:, 0].max() == 1.0 or p.mean() == pytest.approx(0.1)
    assert p[:, 0].max() > 5 * np.median(p[:, 0])  # alpha = 0.1: few labels are there often


def test_rates_by_labels_have_a_floor():
    labels = np.eye(10, dtype=int) * 60
    p = Bernoulli(label_alpha=0.1, minimum=0.02).start(crowd(10, labels), 3).p
    assert p.min() == 0.02
    assert p.max() <= 1


def test_a_mixed_client_has_the_mean_rate():
    labels = np.vstack([np.eye(4, dtype=int) * 8, np.full((1, 4), 5)])
    process = Bernoulli(rate=0.1, label_alpha=5.0, minimum=0.0)
    p = process.start(crowd(5, labels), 1).p
    assert p[4] == pytest.approx(p[:4].mean())
    assert p[4] == pytest.approx(0.1)


def test_cyclic_groups_take_turns():
    """Ten clients in four groups: 0-2, 3-4, 5-7, 8-9, two rounds each."""
    drawn = cohorts(Cyclic(groups=4, turn=2), 16, session(10))
    groups = [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9]]
    assert drawn == [group for group in groups for _ in range(2)] * 2


def test_cyclic_begins_anew_with_a_session():
    process = Cyclic(groups=2)
    assert process.draw(None, 7, session([4, 5, 6, 7], first=7), 0).tolist() == [4, 5]


def test_the_server_takes_some_of_those_who_are_there():
    drawn = cohorts(Cyclic(groups=2, clients=3), 400, session(20))
    assert {len(ids) for ids in drawn} == {3}
    assert shares(drawn, 20) == pytest.approx(np.full(20, 1 / 20), abs=0.02)


def test_fewer_than_asked_is_a_smaller_cohort():
    assert cohorts(Cyclic(groups=2, clients=30), 2, session(20)) == [
        list(range(10)), list(range(10, 20))
    ]  # fmt: skip


def test_nobody_is_an_empty_cohort():
    assert cohorts(Bernoulli(rates=(0.0,) * 5), 3, session(5)) == [[], [], []]


def test_diurnal_rates():
    """Over whole days (8 * 0.8 + 16 * 0.05) / 24 = 0.3; nights come 8 hours in a row."""
    there = presence(Diurnal(), rounds=144 * 20, people=session(50))
    assert there.mean(0) == pytest.approx(np.full(50, 0.3), abs=0.04)
    days = there.reshape(20, 144, 50).mean(0)  # [time of day, client]
    night = (days > 0.4).sum(0)
    assert night == pytest.approx(np.full(50, 48), abs=6)


def test_diurnal_time_zones_spread_the_load():
    spread = presence(Diurnal(zones=24), 144, session(500)).sum(1)
    alone = presence(Diurnal(zones=1), 144, session(500)).sum(1)
    assert spread.min() > 100
    assert alone.min() < 50
    assert alone.max() > 350


def test_regularised_sees_everybody_once_per_cycle():
    """Ten clients in cohorts of three: 3, 3, 3 and 1, then a new order."""
    drawn = cohorts(Regularised(clients=3), 12, session(10))
    cycles = [drawn[n : n + 4] for n in (0, 4, 8)]
    for cycle in cycles:
        assert [len(ids) for ids in cycle] == [3, 3, 3, 1]
        assert sorted(client for ids in cycle for client in ids) == list(range(10))
    assert cycles[0] != cycles[1]


@given(
    kind=st.sampled_from(
        [k for k in PARTICIPATION if k not in ("trace", "phones", "uniform", "regularised")]
    ),
    clients=st.lists(st.integers(0, 200), min_size=4, max_size=40, unique=True),
    seed=st.integers(0, 2**32),
    first=st.integers(0, 100),
)
@settings(max_examples=120, deadline=None)
def test_every_process_draws_distinct_clients_in_order(kind, clients, seed, first):
    """And the same ones at the same address."""
    process, people = PARTICIPATION[kind](), session(sorted(clients), first)
    who = process.start(crowd(max(clients) + 1), seed)
    process.check(people)
    for t in range(first, first + 3):
        ids = process.draw(who, t, people, seed)
        assert ids.tolist() == sorted(set(ids.tolist()))
        assert set(ids.tolist()) <= set(clients)
        assert ids.tolist() == process.draw(who, t, people, seed).tolist()
        who = process.observe(who, Round(t, ids, {"train_accuracy": 0.5}))


def test_rates_must_be_one_per_client():
    with pytest.raises(ConfigError, match="one for each of the 5 clients"):
        Bernoulli(rates=(0.1, 0.2)).start(crowd(5), 0)


def test_more_groups_than_clients():
    with pytest.raises(ConfigError, match="at most the 3 clients of session 0"):
        Cyclic().check(session(3))
