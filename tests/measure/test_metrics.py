"""Numbers about runs, by hand."""

import pytest

from fedtide.measure.metrics import (
    accumulated_gain,
    against,
    by_session,
    costs,
    metrics,
    time_to_reach,
    transition_scores,
)
from fedtide.measure.summary import beside_first, spread


def lines(*sessions, **changes):
    """A journal from the accuracies of each session."""
    found, t = [], 0
    for number, accuracies in enumerate(sessions):
        for r, accuracy in enumerate(accuracies):
            found.append(
                {
                    "t": t,
                    "session": number,
                    "round_in_session": r,
                    "accuracy": accuracy,
                    "loss": None if accuracy is None else 1 - accuracy,
                    "cohort": 3,
                    "steps": 6,
                    "bytes_up": 10,
                    "bytes_down": 20,
                    "seconds": {"train": 1.0},
                    **changes,
                }
            )
            t += 1
    return found


PROPOSED = lines([0.5, 0.9], [0.76, 0.8, 0.8], [0.7, 0.9, 1.0])
OTHER = lines([0.5, 0.9], [0.1, 0.5, 0.77], [0.2, 0.3, 0.4])


def test_time_to_reach():
    """0.95 of the peak 0.8 is 0.76: reached in round 1 here, in round 3 there; 0.95 is never reached."""
    proposed, other = by_session(PROPOSED), by_session(OTHER)
    assert time_to_reach(proposed[1], 0.76) == 1
    assert time_to_reach(other[1], 0.76) == 3
    assert time_to_reach(other[2], 0.95) == 4  # one more than there are


def test_accumulated_gain():
    """(0.76 - 0.1) + (0.8 - 0.5) + (0.8 - 0.77) = 0.99."""
    assert accumulated_gain(by_session(PROPOSED)[1], by_session(OTHER)[1]) == pytest.approx(0.99)


def test_a_run_beside_another():
    beside = against(OTHER, PROPOSED)
    assert beside["recovery_rounds"] == [3, 4]
    assert beside["accumulated_gain"] == pytest.approx([0.99, 1.7])
    own = against(PROPOSED, PROPOSED)
    assert own == {"recovery_rounds": [1, 3], "accumulated_gain": [0, 0]}
    assert against(PROPOSED, PROPOSED, rho=0.5)["recovery_rounds"] == [1, 1]


def test_cells_beside_the_first():
    beside = beside_first([{1: PROPOSED, 2: OTHER}, {1: OTHER}], [[0, 1]])
    assert beside[0][1]["accumulated_gain"] == [0, 0]
    assert beside[1] == {1: against(OTHER, PROPOSED)}
    assert beside_first([], [[]]) == []


def test_cells_beside_the_first_of_their_problem():
    runs = [{1: PROPOSED}, {1: OTHER}, {1: OTHER}, {1: PROPOSED}]
    beside = beside_first(runs, [[0, 2], [1, 3]])
    assert beside[1] == {1: against(OTHER, OTHER)}
    assert beside[2] == {1: against(OTHER, PROPOSED)}
    assert beside[3] == {1: against(PROPOSED, OTHER)}


def test_rounds_that_were_not_evaluated():
    """Rounds without a test: T counts all rounds, gains only those that both runs tested."""
    gaps = lines([0.5], [None, 0.7, None, 0.8])
    whole = lines([0.5], [0.1, 0.2, 0.3, 0.4])
    assert time_to_reach(by_session(gaps)[1], 0.75) == 4
    assert accumulated_gain(by_session(whole)[1], by_session(gaps)[1]) == pytest.approx(-0.9)
    assert transition_scores([line for line in gaps if line["accuracy"]], 3) == [0.7]


def test_costs_are_counted():
    """5 rounds of 3 clients; two starts, one with 2 gradient rounds of 4 clients, its bytes in its line."""
    run = lines([0.1, 0.2], [0.3, 0.4, 0.5])
    run[0]["start"] = 0
    run[2] |= {"start": 1, "gradient_rounds": 2, "gradient_uploads": 8, "stored_floats": 30}
    run[2] |= {"steps": 6 + 16, "bytes_up": 10 + 80}
    run[4] |= {"cohort": 0, "stored_floats": 20, "latency": 2.5, "joules": 7}
    assert costs(run) == {
        "starts": 2,
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


def test_seeds_with_different_numbers_of_sessions():
    """Each seed counts alike, with all its sessions; sessions of the same number need not correspond."""
    found = spread([[1.0, 2.0, 9.0], [3.0, 5.0]])
    assert found == {"mean": 4.0, "std": 0.0, "values": [[1.0, 2.0, 9.0], [3.0, 5.0]]}
    assert spread([[1.0, 3.0], []])["mean"] == 2.0
    assert spread([[], []]) == {"mean": None, "std": None, "values": [[], []]}


def test_seeds_with_as_many_sessions_each():
    found = spread([[1.0, 2.0], [3.0, 6.0]])
    assert (found["mean"], found["std"]) == (3.0, pytest.approx(1.5 * 2**0.5))
    assert found["by_session"] == {"mean": [2.0, 4.0], "std": pytest.approx([2**0.5, 8**0.5])}
