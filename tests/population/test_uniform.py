"""Full participation, and uniformly random cohorts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError
from fedtide.core.types import Nothing, Session
from fedtide.population.participation import Full, Uniform
from fedtide.population.process import rounded_down, rounded_up


def session(clients, number=0):
    return Session(number, np.asarray(clients), 0, 10)


def draw(process, t, clients, seed=0):
    return process.draw(Nothing(), t, session(clients), seed).tolist()


def test_full():
    assert draw(Full(), 3, [2, 5, 9]) == [2, 5, 9]


@given(
    clients=st.lists(st.integers(0, 10**6), min_size=1, max_size=50, unique=True).map(sorted),
    t=st.integers(0, 1000),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_cohort_is_ordered_and_without_repetition(clients, t, seed, data):
    count = data.draw(st.integers(1, len(clients)))
    cohort = draw(Uniform(clients=count), t, clients, seed)
    assert len(cohort) == count
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(clients)
    assert cohort == draw(Uniform(clients=count), t, clients, seed)


def test_rounds_and_seeds_draw_anew():
    clients = range(100)
    cohorts = [draw(Uniform(clients=10), t, clients, seed) for t in range(5) for seed in range(5)]
    assert len({tuple(cohort) for cohort in cohorts}) == 25


@pytest.mark.parametrize(("population", "count"), [(40, 10), (40, 1), (12, 11)])
def test_everybody_takes_part_equally_often(population, count):
    """Over 3,000 rounds every client's share of rounds is within five standard deviations of its rate."""
    rounds, rate = 3000, count / population
    process, everyone = Uniform(clients=count), session(range(100, 100 + population))
    seen = np.zeros(population)
    pairs = 0
    for t in range(rounds):
        cohort = process.draw(Nothing(), t, everyone, 1) - 100
        seen[cohort] += 1
        pairs += {0, population - 1} <= set(cohort.tolist())
    assert np.abs(seen / rounds - rate).max() < 5 * np.sqrt(rate * (1 - rate) / rounds)
    together = rate * (count - 1) / (population - 1)
    assert abs(pairs / rounds - together) <= 5 * np.sqrt(together * (1 - together) / rounds)


def test_large_populations_are_drawn_evenly():
    """numpy takes another way when the cohort is small against the population."""
    process, everyone = Uniform(clients=20), session(np.arange(1_000_000))
    drawn = np.concatenate([process.draw(Nothing(), t, everyone, 0) for t in range(500)])
    counts = np.bincount(drawn // 100_000, minlength=10)
    assert np.abs(counts - 1000).max() < 5 * 30


@pytest.mark.parametrize(
    ("rate", "population", "count"), [(0.1, 100, 10), (0.5, 5, 2), (0.01, 10, 1), (1.0, 7, 7)]
)
def test_a_rate_is_rounded_down_but_never_to_zero(rate, population, count):
    assert len(draw(Uniform(rate=rate), 0, range(population))) == count


def test_rates_that_are_no_binary_fractions_give_the_cohort_of_the_decimal_number():
    """0.29 * 100 is 28.999999999999996 and 0.07 * 100 is 7.000000000000001 in floating point."""
    assert (0.29 * 100, 0.07 * 100) == (28.999999999999996, 7.000000000000001)
    assert rounded_down(0.29, 100) == 29
    assert rounded_up(0.07, 100) == 7


def test_a_cohort_larger_than_the_population():
    Uniform(clients=3).check(session([1, 2, 3]))
    with pytest.raises(ConfigError) as caught:
        Uniform(clients=4).check(session([1, 2, 3], number=5))
    assert str(caught.value) == (
        "participation.clients must be at most the 3 clients that exist in session 5. Got 4. "
        "Lower it, or use participation.rate."
    )
