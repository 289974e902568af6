"""Recovery after starts, and how long clients wait, by hand."""

import pytest

from fedtide.measure import recovery
from fedtide.measure.recovery import (
    Recovery,
    accumulated_gain,
    against,
    stays,
    time_to_reach,
)
from fedtide.measure.scale import Scale
from fedtide.measure.windows import Window, evaluated, transition_scores, windows
from tests.measure.journals import lines

PROPOSED = lines([0.5, 0.9], [0.76, 0.8, 0.8], [0.7, 0.9, 1.0])
OTHER = lines([0.5, 0.9], [0.1, 0.5, 0.77], [0.2, 0.3, 0.4])
SECOND, THIRD = Window(2, 5), Window(5, 8)


def compared(run, reference, rho=0.95, rounds=2):
    return against(run, reference, Recovery(rho=rho), rounds).metrics


def moved(line, arrived, **left):
    """So many clients arrive; of those that came in round 0, 1 ..., `since_0`, `since_1` ... leave."""
    rounds = [int(name.removeprefix("since_")) for name in left]
    gone = {"clients": sum(left.values()), "since": [rounds, list(left.values())]}
    line |= {"arrived": {"clients": arrived}, "left": gone}


def started(*accuracies, starts=()):
    """One long session with starts in these rounds."""
    run = lines(accuracies)
    for number, t in enumerate((0, *starts)):
        run[t]["start"] = number
    return run


def test_windows_begin_with_starts():
    assert windows(started(0.1, 0.2, 0.3, 0.4, starts=[1, 3])) == [Window(1, 3), Window(3, 4)]
    assert windows(started(0.1, 0.2)) == []
    assert windows(PROPOSED) == [SECOND, THIRD]  # no starts are named: sessions


def test_a_run_from_an_archive_begins_with_a_start_that_counts():
    run = lines([0.1, 0.2])
    run[0]["start"] = 4
    assert windows(run) == [Window(0, 2)]


def test_time_to_reach():
    """0.95 of the peak 0.8 is 0.76: reached in round 1 here, in round 3 there; 0.95 is never reached."""
    assert time_to_reach(evaluated(PROPOSED), SECOND, 0.76) == 1
    assert time_to_reach(evaluated(OTHER), SECOND, 0.76) == 3
    assert time_to_reach(evaluated(OTHER), THIRD, 0.95) == 4  # one more than there are


def test_accumulated_gain():
    """(0.76 - 0.1) + (0.8 - 0.5) + (0.8 - 0.77) = 0.99."""
    here, there = (SECOND.of(evaluated(run)) for run in (PROPOSED, OTHER))
    assert accumulated_gain(here, there) == pytest.approx(0.99)


def test_a_run_beside_another():
    beside = compared(OTHER, PROPOSED)
    assert beside["recovery_rounds"] == [3, 4]
    assert beside["accumulated_gain"] == pytest.approx([0.99, 1.7])
    assert beside["transition_accuracy"] == pytest.approx([0.3, 0.25])
    own = compared(PROPOSED, PROPOSED)
    assert (own["recovery_rounds"], own["accumulated_gain"]) == ([1, 3], [0, 0])
    assert compared(PROPOSED, PROPOSED, rho=0.5)["recovery_rounds"] == [1, 1]


def test_rounds_that_were_not_evaluated():
    """Rounds without a test: T counts all rounds, gains only those that both runs tested."""
    gaps, whole = lines([0.5], [None, 0.7, None, 0.8]), lines([0.5], [0.1, 0.2, 0.3, 0.4])
    (window,) = windows(gaps)
    assert time_to_reach(evaluated(gaps), window, 0.75) == 4
    both = (window.of(evaluated(run)) for run in (whole, gaps))
    assert accumulated_gain(*both) == pytest.approx(-0.9)
    assert transition_scores(evaluated(gaps), 3, [window]) == [0.7]
    assert transition_scores(evaluated(gaps), 1, [window]) == []


def test_all_rows_are_compared_in_the_windows_of_the_reference():
    """The reference starts in round 2 only; the other run starts in rounds 1 and 3, or never."""
    reference = started(0.1, 0.2, 0.5, 0.8, starts=[2])
    often = started(0.1, 0.2, 0.6, 0.4, starts=[1, 3])
    never = started(0.1, 0.2, 0.1, 0.2)
    assert compared(often, reference)["transition_accuracy"] == [0.5]
    assert compared(never, reference)["transition_accuracy"] == pytest.approx([0.15])
    assert compared(never, reference)["recovery_rounds"] == [3]
    assert compared(reference, often)["recovery_rounds"] == [3, 1]  # 0.57 of 0.6, and 0.38 of 0.4


def test_recovery_is_priced():
    """Rounds of 2, 3 and 4 s; recovered after two: 5 s. Never recovered: 9 s, and a fourth round of 3 s."""
    reference = started(0.9, 0.5, 0.8, 0.8, starts=[1])
    slow = started(0.9, 0.1, 0.2, 0.3, starts=[1])
    for run in (reference, slow):
        for line, seconds in zip(run, (7.0, 2.0, 3.0, 4.0), strict=True):
            line |= {"latency": seconds, "joules": 10 * seconds}
    assert compared(reference, reference)["recovery_rounds"] == [2]
    assert compared(reference, reference)["recovery_seconds"] == [5.0]
    assert compared(reference, reference)["recovery_joules"] == [50.0]
    assert compared(reference, reference)["recovery_bytes"] == [60.0]  # 30 in a round
    assert compared(slow, reference)["recovery_rounds"] == [4]
    assert compared(slow, reference)["recovery_seconds"] == [12.0]


def test_costs_that_are_zero_are_left_out():
    assert "recovery_seconds" not in compared(PROPOSED, PROPOSED)


def test_how_long_clients_wait():
    """Clients 2 and 3 come in round 1, client 4 in round 2; 3 leaves after round 1, the others stay.

    Rounds 1 to 3 of the reference have at most 0.8, so 0.76 serves client 2, in the third round of its stay;
    client 3 is there in a round with at most 0.4 and gets 0.2: it leaves unserved, one round more than its
    stay is counted. Client 4 is served in its second round.
    """
    reference, run = lines([0.1], [0.4, 0.6, 0.8]), lines([0.1], [0.2, 0.5, 0.79])
    for one in (reference, run):
        moved(one[0], 2)
        moved(one[1], 2, since_0=1)
        moved(one[2], 1, since_1=1)
        for line in one:
            line["latency"] = 2.0
    assert list(stays(run)) == [(Window(1, 2), 1), (Window(1, 4), 1), (Window(2, 4), 1)]
    found = compared(run, reference)
    assert found["waiting_rounds"] == pytest.approx((3 + 2 + 2) / 3)
    assert found["waiting_seconds"] == pytest.approx((6 + 4 + 4) / 3)
    assert found["unserved"] == pytest.approx(1 / 3)


def test_a_client_that_returns_waits_again():
    run = lines([0.1], [0.4], [0.6], [0.8])
    moved(run[0], 2)
    moved(run[1], 0, since_0=1)
    moved(run[2], 1, since_0=1)
    assert list(stays(run)) == [(Window(2, 4), 1)]


def test_journals_that_do_not_say_when_clients_had_come_know_no_waits():
    run = lines([0.1], [0.4, 0.6, 0.8])
    moved(run[0], 2)
    moved(run[1], 2, since_0=1)
    moved(run[2], 1, since_1=1)
    assert "waiting_rounds" in compared(run, run)
    del run[2]["left"]["since"]
    assert "waiting_rounds" not in compared(run, run)


def test_a_reference_that_gets_worse_than_untrained_recovers_at_its_best():
    """Smaller is better: untrained 10, then 14, 12, 12. The target is 12 and not 10 + 0.95 * 2."""
    error = Scale("error", larger=False)
    run = [
        line | {"score": score, "untrained_score": 10.0}
        for line, score in zip(lines([0.1], [0.1, 0.1, 0.1]), (10.0, 14.0, 12.0, 12.0), strict=True)
    ]
    assert recovery.TestedRun(run, evaluated(run, error)).target(Window(1, 4), 0.95, error) == 12.0


def test_journals_without_arrivals_know_no_waits():
    assert "waiting_rounds" not in compared(PROPOSED, PROPOSED)
