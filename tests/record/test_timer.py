"""Wall time by phase, with a clock by hand."""

from fedtide.record import timer as module
from fedtide.record.timer import Timer


def test_laps_add_up_and_a_part_is_taken_out(monkeypatch):
    times = iter([10.0, 11.0, 13.5, 14.0])
    monkeypatch.setattr(module, "perf_counter", lambda: next(times))
    timer = Timer()
    timer.lap("select")
    timer.lap("train")
    timer.lap("select")
    assert timer.seconds == {"select": 1.5, "train": 2.5}
    timer.part("gather", "train", 0.5)
    assert timer.seconds == {"select": 1.5, "train": 2.0, "gather": 0.5}
