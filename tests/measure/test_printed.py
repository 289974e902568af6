"""Accuracies as the DIMC and FAST papers print them, by hand."""

import pytest

from fedtide.measure.printed import dimc_windows, last_tests
from tests.measure.journals import lines


def sessions(*accuracies):
    """Sessions of two rounds."""
    return lines(*zip(accuracies[::2], accuracies[1::2], strict=True))


def test_the_window_of_dimc_begins_one_round_before_the_start():
    """Starts in rounds 2 and 4; windows of 2 rounds: rounds 1 and 2, and 3 and 4."""
    runs = [sessions(0.1, 0.2, 0.4, 0.5, 0.8, 0.9), sessions(0.3, 0.4, 0.8, 0.5, 0.6, 0.9)]
    first, second = dimc_windows(runs, 2)
    assert first.mean == pytest.approx((0.2 + 0.4 + 0.4 + 0.8) / 4)
    assert first.std == pytest.approx((0.2 + 0.4) / 2 / 2**0.5)
    assert second.mean == pytest.approx((0.5 + 0.5 + 0.8 + 0.6) / 4)
    assert second.std == pytest.approx((0.0 + 0.2) / 2 / 2**0.5)


def test_windows_that_differ_between_seeds_have_no_common_number():
    assert dimc_windows([sessions(*[0.5] * 6), sessions(*[0.5] * 4)], 2) == []
    assert dimc_windows([sessions(0.5, None, 0.5, 0.5)], 2) == []


def test_the_last_five_tests_of_fast():
    (found,) = last_tests([sessions(0.9, 0.1, 0.2, 0.3, 0.4, 0.5), sessions(0.9, *[0.7] * 5)])
    assert found.mean == pytest.approx((0.3 + 0.7) / 2)
    assert found.std == pytest.approx((0.025**0.5 + 0) / 2)
