"""Numbers about runs, by hand."""

import pytest

from fedtide.measure.metrics import costs, metrics
from fedtide.measure.summary import spread
from tests.measure.journals import lines

PROPOSED = lines([0.5, 0.9], [0.76, 0.8, 0.8], [0.7, 0.9, 1.0])


def test_costs_are_counted():
    """5 rounds of 3 clients; two starts, one with 2 gradient rounds of 4 clients, its bytes in its line."""
    run = lines([0.1, 0.2], [0.3, 0.4, 0.5])
    run[0]["start"] = 0
    run[2] |= {"start": 1, "gradient_rounds": 2, "gradient_uploads": 8, "stored_floats": 30}
    run[2] |= {"steps": 6 + 16, "bytes_up": 10 + 80}
    run[2] |= {"start_costs": {"steps": 16, "bytes_up": 80, "bytes_down": 5, "joules": 3.0}}
    run[3] |= {"start_costs": {"latency": 1.5}}  # a test that led to no start
    run[4] |= {"cohort": 0, "stored_floats": 20, "latency": 2.5, "joules": 7}
    assert costs(run) == {
        "starts": 2,
        "start_bytes": 85,
        "start_seconds": 1.5,
        "start_joules": 3,
        "gradient_rounds": 2,
        "broadcasts": 4 + 2,
        "uploads": 12 + 8,
        "steps": 5 * 6 + 16,
        "bytes_up": 5 * 10 + 80,
        "bytes_down": 100,
        "latency": 2.5,
        "joules": 7,
        "stored_floats": 30,
        "stragglers": 0,
    }


def test_metrics_of_a_run():
    found = metrics(PROPOSED, transition_rounds=2)
    assert found["transition_accuracy"] == pytest.approx([0.78, 0.8])
    assert found["accuracy"] == pytest.approx((0.8 + 0.8 + 0.7 + 0.9 + 1.0) / 5)
    assert found["best_accuracy"] == 1.0
    assert found["wall_seconds"] == 8.0
    assert "snapshot_share" not in found
    fast = lines([0.5, 0.6])
    fast[0]["snapshot"], fast[1]["snapshot"] = True, False
    assert metrics(fast)["snapshot_share"] == 0.5


def test_seeds_with_different_numbers_of_starts():
    """Each seed counts alike, with all its starts; starts of the same number need not correspond."""
    found = spread([[1.0, 2.0, 9.0], [3.0, 5.0]])
    assert found == {"mean": 4.0, "std": 0.0, "values": [[1.0, 2.0, 9.0], [3.0, 5.0]]}
    assert spread([[1.0, 3.0], []])["mean"] == 2.0
    assert spread([[], []]) == {"mean": None, "std": None, "values": [[], []]}
    assert spread([1.0, None, 3.0]) == {
        "mean": 2.0,
        "std": pytest.approx(2**0.5),
        "values": [1.0, None, 3.0],
    }


def test_seeds_with_as_many_starts_each():
    found = spread([[1.0, 2.0], [3.0, 6.0]])
    assert (found["mean"], found["std"]) == (3.0, pytest.approx(1.5 * 2**0.5))
    assert found["by_start"] == {"mean": [2.0, 4.0], "std": pytest.approx([2**0.5, 8**0.5])}
