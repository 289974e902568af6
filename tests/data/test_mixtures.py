"""The random draws behind the Dirichlet partitions."""

import numpy as np
import pytest

from fedtide.data.mixtures import _labels_drawn, log_dirichlet, topped_up


def test_labels_close_in_the_order_in_which_they_run_out():
    """Client 0 wants 0, then 1; client 1 wants 1, then 2. Turns 0 0 1 1 1, room 1 2 2.

    0 takes 0, finds it empty, takes 1; 1 takes the last 1, then 2 and 2.
    """
    shares = np.array([[0.0, -100.0, -200.0], [-200.0, 0.0, -100.0]])
    turns, room = np.array([0, 0, 1, 1, 1]), np.array([1, 2, 2])
    assert _labels_drawn(turns, shares, room, np.random.default_rng(0)).tolist() == [0, 1, 1, 2, 2]


def test_log_dirichlet_has_the_moments_of_a_dirichlet():
    alpha = np.array([0.05, 0.5, 2.0])
    draws = np.exp(log_dirichlet(alpha, 100_000, np.random.default_rng(5)))
    mean = alpha / alpha.sum()
    variance = mean * (1 - mean) / (alpha.sum() + 1)
    assert draws.sum(axis=1) == pytest.approx(1)
    assert draws.mean(axis=0) == pytest.approx(mean, rel=0.05)
    assert draws.var(axis=0) == pytest.approx(variance, rel=0.05)


def test_clients_below_the_minimum_get_examples_of_those_that_hold_most():
    """Sizes 9, 4, 1, 0 and a minimum of 3: five examples move, all from client 0 (9 -> 4)."""
    owners = topped_up(np.repeat([0, 1, 2], [9, 4, 1]), 4, 3, np.random.default_rng(0))
    assert np.bincount(owners, minlength=4).tolist() == [4, 4, 3, 3]
    assert owners[9:].tolist() == [1, 1, 1, 1, 2]
