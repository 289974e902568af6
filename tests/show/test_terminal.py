"""What a person sees while a study runs, drawn by rich into a text."""

from io import StringIO

import pytest
from rich.console import Console

from fedtide.record.line import Progress
from fedtide.show.terminal import LiveView, results

ROUNDS = {(f"algorithm = {name}", seed): 3 for name in ("fedavg", "moon") for seed in (1, 2)}


def view(console=None, quiet=False):
    return LiveView("tides", ROUNDS, console or Console(file=StringIO()), quiet)


def news(label, t, accuracy, seed=1):
    line = {"t": t, "accuracy": accuracy, "cohort": 30, "population": 1200}
    return Progress(f"algorithm = {label}", seed, line)


def shown(live, width=80):
    console = Console(file=StringIO(), width=width)
    console.print(live.view())
    return console.file.getvalue()


def test_bar_accuracy_best_clients_and_time_left():
    live = view(Console(file=StringIO(), force_terminal=True))
    live.watch(news("fedavg", 0, 0.6))
    live.watch(news("fedavg", 1, 0.5))
    live.watch(news("moon", 0, None, seed=2))
    text = shown(live)
    assert "tides" in text
    assert "3/12 rounds" in text
    assert "left" in text
    fedavg, moon = (line.split() for line in text.splitlines() if "algorithm" in line)
    assert fedavg[-7:] == ["1", "2/3", "50.0%", "60.0%", "30", "of", "1,200"]
    assert moon[-7:] == ["2", "1/3", "-", "-", "30", "of", "1,200"]


def test_a_round_without_a_test_keeps_the_last_accuracy():
    live = view()
    live.watch(news("fedavg", 0, 0.6))
    live.watch(news("fedavg", 1, None))
    assert "2/3     60.0%  60.0%" in shown(live)


def test_a_finished_run_leaves_the_screen():
    live = view()
    for t in range(3):
        live.watch(news("fedavg", t, 0.5))
    assert "fedavg" not in shown(live)
    assert "3/12 rounds" in shown(live)


def test_fits_a_narrow_window():
    live = view()
    live.watch(news("fedavg", 0, 0.5))
    lines = shown(live, 56).splitlines()
    assert len(lines) == 3  # nothing is folded
    assert all(len(line) <= 56 for line in lines)
    assert lines[-1].startswith("algorithm")
    assert lines[-1].endswith("30 of 1,200")


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True), (False, True)])
def test_silent_where_nobody_looks(terminal, quiet):
    file = StringIO()
    with view(Console(file=file, force_terminal=terminal), quiet) as live:
        live.watch(news("fedavg", 0, 0.6))
    assert file.getvalue() == ""


def test_draws_on_a_terminal_and_cleans_up():
    file = StringIO()
    with view(Console(file=file, force_terminal=True, width=80)) as live:
        live.watch(news("fedavg", 0, 0.6))
        live._screen.refresh()
    assert "60.0%" in file.getvalue()
    assert file.getvalue().endswith("\x1b[1A\x1b[2K")  # the last line is erased again


def test_the_table_leaves_room_for_the_settings():
    def metric(mean):
        return {"mean": mean, "std": 0.0, "values": [mean, mean]}

    def metrics():
        one = {"transition_accuracy": {"mean": None, "std": None, "values": [[], []]}}
        names = "accuracy best_accuracy snapshot_share bytes_up latency joules wall_seconds"
        return one | {name: metric(0.0123) for name in names.split()}

    cells = [{"settings": {"case": "a long name of a setting"}, "metrics": metrics()}] * 2
    console = Console(file=StringIO(), width=80)
    console.print(results("tides", 2, {"cells": cells}))
    text = console.file.getvalue()
    assert "a long name" in text
    assert "0.0123" in text  # joules, not 0.0
    assert "…" not in text
    assert "MB up" not in text


def test_the_best_setting_is_so_over_all_sessions_of_each_seed():
    """Cut to the sessions that both seeds had, 0.2 would be ahead of 0.1."""

    def metrics(*lists):
        names = "accuracy bytes_up latency joules wall_seconds"
        after = {
            name: {"values": list(lists)} for name in ("transition_accuracy", "recovery_rounds")
        }
        return after | {n: {"mean": 0.5, "std": 0.0, "values": [0.5] * 2} for n in names.split()}

    cells = [
        {"settings": {"lr": 0.1}, "metrics": metrics([0.4, 0.9], [0.4])},
        {"settings": {"lr": 0.2}, "metrics": metrics([0.5, 0.1], [0.5])},
    ]
    table = results("tides", 2, {"cells": cells})
    assert [row.style for row in table.rows] == ["bold", None]


def test_a_study_with_every_column_shows_the_ones_that_matter():
    """Clients that change, a network and noise: joules give way, the epsilon stays."""
    names = "accuracy best_accuracy snapshot_share bytes_up latency joules wall_seconds"
    names += " simulated_epsilon"
    told = {name: {"mean": 0.5, "std": 0.0, "values": [0.5]} for name in names.split()}
    lists = {"mean": [0.5], "std": [0.0], "values": [[0.5]]}
    told |= {"transition_accuracy": lists, "recovery_rounds": lists}
    table = results("tides", 1, {"cells": [{"settings": {}, "metrics": told}]})
    titles = [column.header for column in table.columns]
    assert "simulated\nepsilon" in titles
    assert "joules" not in titles
