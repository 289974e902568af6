"""Paired comparisons against SciPy, against brute force, and on simulated seeds."""

import math
from itertools import product
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from fedtide.measure.distributions import (
    f_p,
    incomplete_beta,
    range_quantile,
    student_p,
    student_quantile,
)
from fedtide.measure.ranks import ranked
from fedtide.measure.statistics import (
    LEVEL,
    MOST_FLIPPED,
    holm,
    holm_levels,
    paired,
    permutation_p,
    seeds_needed,
    smallest_p,
)


def drawn(n, seed=0, shift=0.3):
    return list(np.random.default_rng(seed).normal(shift, 1, n))


def by_seed(values):
    return dict(enumerate(values))


def only(first, second):
    (pair,) = paired([{0: by_seed(first), 1: by_seed(second)}])
    return pair


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 19, 100, 999])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.5, 2.0, 4.3, 12.7, 300.0])
def test_student_p_equals_scipys(t, df):
    assert student_p(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-10)


@pytest.mark.parametrize("df", [1, 2, 4, 9, 30, 500])
@pytest.mark.parametrize("p", [0.6, 0.8, 0.975, 0.9995])
def test_student_quantile_equals_scipys(p, df):
    assert student_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9)


def test_f_and_beta_equal_scipys():
    for f, first, second in ((0.2, 2, 4), (3.1, 4, 20), (40.0, 1, 3), (0.0, 3, 3)):
        assert f_p(f, first, second) == pytest.approx(stats.f.sf(f, first, second), rel=1e-10)
    for x, a, b in ((0.0, 1, 2), (1.0, 1, 2), (0.3, 2.5, 0.5), (0.99, 30, 0.5)):
        assert incomplete_beta(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-10)


@pytest.mark.parametrize(("k", "q"), [(2, 2.772), (3, 3.314), (5, 3.858), (10, 4.474)])
def test_studentized_range_equals_the_printed_table(k, q):
    """Tukey's table for infinite degrees of freedom, whose values divided by sqrt(2) are Demsar's."""
    assert range_quantile(0.95, k) == pytest.approx(q, abs=6e-4)


def test_studentized_range_equals_scipys():
    assert range_quantile(0.95, 4) == pytest.approx(
        stats.studentized_range.ppf(0.95, 4, np.inf), rel=1e-6
    )


@pytest.mark.parametrize("n", [2, 3, 5, 10, 25])
def test_difference_interval_and_p_equal_scipys(n):
    first, second = drawn(n, 1), drawn(n, 2, 0)
    pair = only(first, second)
    if fmean(first) < fmean(second):
        first, second = second, first
    test = stats.ttest_rel(first, second)
    low, high = test.confidence_interval(0.95)
    assert pair.difference == pytest.approx(fmean(first) - fmean(second))
    assert (pair.difference - pair.margin, pair.difference + pair.margin) == pytest.approx(
        (low, high)
    )
    assert pair.p == pytest.approx(test.pvalue)
    assert pair.difference >= 0


def test_seeds_are_paired():
    """A common change of both methods from seed to seed does not widen the interval."""
    level = np.array([0.2, 0.5, 0.9])
    gaps = np.array([0.01, 0.012, 0.011])
    pair = only(level + gaps, level)
    assert pair.difference == pytest.approx(0.011)
    assert pair.margin == pytest.approx(stats.t.ppf(0.975, 2) * stdev(gaps) / math.sqrt(3))
    assert pair.is_clear


def test_only_common_seeds_count():
    pair = paired([{0: {1: 0.5, 2: 0.6, 3: 0.9}, 1: {2: 0.5, 3: 0.7, 4: 0.1}}])[0]
    assert (pair.seeds, pair.difference) == (2, pytest.approx(0.15))
    assert paired([{0: {1: 0.5, 2: 0.6}, 1: {2: 0.5}}]) == []


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11])
def test_permutations_equal_brute_force(n):
    for seed in range(4):
        gaps = drawn(n, seed)
        sums = [
            sum(s * g for s, g in zip(signs, gaps, strict=True))
            for signs in product((1, -1), repeat=n)
        ]
        expected = fmean(abs(one) >= abs(sum(gaps)) - 1e-12 for one in sums)
        assert permutation_p(gaps) == pytest.approx(expected, abs=1e-12)


def test_permutations_with_ties_equal_brute_force():
    """Rounding must not decide whether a sum is as far from zero as the observed one."""
    gaps = [0.1, 0.2, 0.3, -0.1, 0.2]
    units = [1, 2, 3, -1, 2]
    sums = [
        abs(sum(s * g for s, g in zip(signs, units, strict=True)))
        for signs in product((1, -1), repeat=5)
    ]
    assert permutation_p(gaps) == fmean(one >= abs(sum(units)) for one in sums)


def test_permutations_equal_scipys():
    gaps = drawn(12, 3)
    test = stats.permutation_test(
        (gaps,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert permutation_p(gaps) == pytest.approx(test.pvalue)
    assert permutation_p([0.1] * (MOST_FLIPPED + 1)) is None


@pytest.mark.parametrize(("n", "least"), [(1, 1.0), (3, 0.25), (5, 0.0625), (10, 1 / 512)])
def test_what_so_few_seeds_can_show(n, least):
    assert smallest_p(n) == least
    assert permutation_p([1.0 + i / 10 for i in range(n)]) == least


def test_equal_differences_in_every_seed():
    """Without spread t has no value, so p is that of the permutations; no difference is p = 1."""
    pair = only([0.5, 0.6, 0.7], [0.4, 0.5, 0.6])
    assert (pair.margin, pair.p, pair.is_clear) == (0.0, 0.25, False)
    same = only([0.5, 0.6], [0.5, 0.6])
    assert (same.difference, same.p, same.more) == (0.0, 1.0, None)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm_levels([0.01, 0.04, 0.03]) == pytest.approx([LEVEL / 3, LEVEL, LEVEL / 2])


def test_holm_corrects_for_the_pairs_of_all_groups():
    groups = [{n: by_seed(drawn(5, n + 10 * g)) for n in range(3)} for g in range(2)]
    pairs = paired(groups)
    assert len(pairs) == 6
    assert [pair.p_holm for pair in pairs] == holm([pair.p for pair in pairs])


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("noise", ["normal", "uniform"])
def test_intervals_cover_the_true_difference(n, noise):
    """95 % intervals of simulated seeds: between 93 and 97 % contain the true difference."""
    rng = np.random.default_rng(7)
    true, trials = 0.013, 4000
    common = rng.normal(0.8, 0.05, (trials, n))
    own = rng.normal(0, 0.01, (2, trials, n))
    if noise == "uniform":
        own = rng.uniform(-0.02, 0.02, (2, trials, n))
    covered = 0
    for trial in range(trials):
        pair = only(common[trial] + true + own[0, trial], common[trial] + own[1, trial])
        sign = 1 if pair.first == 0 else -1
        covered += abs(sign * pair.difference - true) <= pair.margin
    assert 0.93 <= covered / trials <= 0.97


def test_a_percentile_bootstrap_would_not_cover():
    """Why the interval is not a bootstrap: with 5 seeds it contains the truth in 83 % of the cases."""
    rng = np.random.default_rng(7)
    gaps = rng.normal(0, 1, (1500, 5))
    means = gaps[:, rng.integers(0, 5, (400, 5))].mean(2)
    low, high = np.percentile(means, [2.5, 97.5], axis=1)
    assert 0.78 <= np.mean((low <= 0) & (high >= 0)) <= 0.88


@pytest.mark.parametrize("effect", [0.3, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("level", [0.05, 0.005])
def test_needed_seeds_give_the_promised_power(effect, level):
    """Compared with the exact power, from the noncentral t distribution."""

    def power(n):
        at = stats.t.ppf(1 - level / 2, n - 1)
        return stats.nct.sf(at, n - 1, effect * math.sqrt(n))

    n = seeds_needed(effect, 1.0, level)
    assert power(n) >= 0.77
    assert power(n - 2) < 0.8


def test_needed_seeds_have_limits():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(0.01, 1.0) is None
    assert seeds_needed(1.0, 1e-9) == 2


def test_more_seeds_are_asked_for_exactly_if_the_difference_is_not_clear():
    for seed in range(30):
        for pair in paired([{n: by_seed(drawn(4, 100 * seed + n, n)) for n in range(3)}]):
            assert pair.more == 0 if pair.is_clear else pair.more is None or pair.more >= 1


def test_ranks_by_hand():
    """Three problems, three methods; a tie shares its ranks."""
    scores = [
        {"a": 0.9, "b": 0.8, "c": 0.7},
        {"a": 0.5, "b": 0.5, "c": 0.1, "d": 1.0},  # d is not in every problem
        {"a": 0.3, "b": 0.4, "c": 0.2},
    ]
    found = ranked(scores)
    assert found.ranks == pytest.approx({"a": 4.5 / 3, "b": 4.5 / 3, "c": 3.0})
    assert found.critical == pytest.approx(3.314 / math.sqrt(2) * math.sqrt(12 / 18), abs=1e-3)
    assert found.level == [["a", "b", "c"]]
    assert ranked(scores[:1]) is None
    assert ranked([{"a": 1.0}, {"a": 2.0}]) is None


def test_friedman_equals_scipys_statistic():
    rng = np.random.default_rng(3)
    table = rng.random((8, 4)) + np.array([0.0, 0.1, 0.2, 0.6])
    found = ranked([dict(zip("abcd", row, strict=True)) for row in table])
    statistic = stats.friedmanchisquare(*table.T).statistic
    f = 7 * statistic / (8 * 3 - statistic)
    assert found.p == pytest.approx(stats.f.sf(f, 3, 21))
    assert next(iter(found.ranks)) == "d"


def test_problems_that_all_agree_are_limited_by_their_number():
    found = ranked([{"a": 0.1, "b": 0.2, "c": 0.3}] * 2)
    assert found.p == pytest.approx(1 / 6)  # of the 6 orders of the second, one agrees


def test_groups_of_level_methods_overlap():
    ranks = ranked([{n: -i for i, n in enumerate("abcdef")}] * 5)
    assert ranks.critical == pytest.approx(3.372, abs=2e-3)
    assert ranks.level == [list("abcd"), list("bcde"), list("cdef")]
