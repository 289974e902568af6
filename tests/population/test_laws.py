"""Index laws: the concentration that FAST's own code shows, and an end to every draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError
from fedtide.population.laws import Beta, Gamma, Weibull
from fedtide.population.uniform import Uniform
from tests.population.crowds import cohorts, session, shares

LAWS = {"beta": Beta, "gamma": Gamma, "weibull": Weibull}

# Over 1000 rounds with 100 clients, from an independent simulation of the published code: clients ever
# seen, the effective number 1 / sum p^2, the clients that hold 90% of all participations.
CONCENTRATION = [
    (Beta(), 59, 22.5, 24),
    (Beta(preset="2023-12"), 36, 14.7, 14),
    (Gamma(), 26, 13.6, 12),
    (Gamma(preset="2023-12"), 34, 17.8, 16),
    (Gamma(shape=5, scale=0.05), 80, 38, 36),
    (Weibull(), 62, 34, 32),
    (Weibull(preset="2023-12"), 42, 19, 18),
    (Uniform(rate=0.1), 100, 100 / (1 + 90 / 100**2), 89),  # counts of mean 100 and variance 90
]


@pytest.mark.parametrize(("law", "seen", "effective", "most"), CONCENTRATION)
def test_concentration(law, seen, effective, most):
    """Who is ever seen depends on a few rare draws, so five runs of it are averaged."""
    runs = [shares(cohorts(law, 1000, seed=seed)) for seed in range(5)]
    assert np.mean([(p > 0).sum() for p in runs]) == pytest.approx(seen, abs=4)
    assert np.mean([1 / (p**2).sum() for p in runs]) == pytest.approx(effective, rel=0.02)
    held = [np.searchsorted(np.sort(p)[::-1].cumsum(), 0.9) + 1 for p in runs]
    assert np.mean(held) == pytest.approx(most, abs=1.2)


def test_presets_are_the_published_pairs():
    rng = np.random.default_rng
    pairs = [
        (Beta(), rng(1).beta(1, 10, 9)),
        (Beta(preset="2023-12"), rng(1).beta(20, 1, 9)),
        (Gamma(), rng(1).gamma(10, 0.01, 9)),
        (Gamma(preset="2023-12"), rng(1).gamma(20, 0.01, 9)),
        (Weibull(), rng(1).weibull(10, 9) / 1.2),
        (Weibull(preset="2023-12"), rng(1).weibull(20, 9) / 1.2),
        (Beta(preset="2023-12", a=3), rng(1).beta(3, 1, 9)),  # a setting goes before the preset
    ]
    for law, expected in pairs:
        assert law.sample(rng(1), 9).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", LAWS.values())
def test_the_cohort_is_a_rate_rounded_up(kind):
    """10% of 139 clients are 14; of 30 they are 3, although 0.1 * 30 > 3 in floating point."""
    for clients, size in ((100, 10), (139, 14), (30, 3), (1, 1)):
        for ids in cohorts(kind(), 20, session(clients)):
            assert len(ids) == size


def test_the_first_to_be_drawn_take_part():
    """z M = 5.9, 2.1, 5.2 (again 5), 12 (outside), 7.7: clients 5, 2 and 7."""

    class Script(Beta):
        def sample(self, rng, count):
            return np.array([0.59, 0.21, 0.52, 1.2, 0.77, 0.01])

    assert cohorts(Script(rate=0.3), 1, session(10)) == [[2, 5, 7]]


@given(
    kind=st.sampled_from(sorted(LAWS)),
    pair=st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
    rate=st.floats(0.001, 1),
    clients=st.lists(st.integers(0, 300), min_size=1, max_size=60, unique=True),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_a_draw_ends_without_repetition(kind, pair, rate, clients, seed):
    """Whatever the law: distinct clients of the session in order, at most the rate, or a clear error."""
    people = session(sorted(clients))
    law = _law(kind, rate, pair)
    try:
        (ids,) = cohorts(law, 1, people, seed)
    except ConfigError:
        return  # it reaches no client; see below
    assert ids == sorted(set(ids))
    assert set(ids) <= set(clients)
    assert 1 <= len(ids) <= max(1, np.ceil(rate * len(clients)))


def test_numbers_too_large_for_a_number_are_outside():
    """A Weibull law of shape 0.001 draws up to 10^308; divided by 1/16 they are infinite."""
    law = Weibull(rate=1.0, shape=0.001, divisor=0.0625)
    z = np.concatenate([law.sample(np.random.default_rng(seed), 4000) for seed in range(3)])
    assert np.isinf(z).any()
    assert all(cohorts(law, 20, session(3)))


def _law(kind, rate, pair):
    names = {"beta": ("a", "b"), "gamma": ("shape", "scale"), "weibull": ("shape", "divisor")}
    return LAWS[kind](rate=rate, **dict(zip(names[kind], pair, strict=True)))


def test_a_law_that_reaches_few_gives_a_smaller_cohort():
    """Nearly all of Beta(10^6, 1) falls on the last client."""
    assert cohorts(Beta(a=1e6, b=1, rate=0.5), 3, session(10)) == [[9]] * 3


def test_a_law_that_reaches_no_client_is_an_error():
    with pytest.raises(ConfigError, match="can draw one of the 10 clients"):
        cohorts(Gamma(shape=1000, scale=1), 1, session(10))
