"""What a person sees while a study runs, drawn by rich into a text."""

from io import StringIO

import pytest
from rich.console import Console

from fedtide import config
from fedtide.core.errors import ConfigError
from fedtide.measure.problems import split
from fedtide.measure.results import ResultRow, Results
from fedtide.record.folder import labelled
from fedtide.record.line import Progress
from fedtide.show.report import tables
from fedtide.show.tables import table
from fedtide.show.terminal import LiveView, pair_table, result_table

ROUNDS = {(f"algorithm = {name}", seed): 3 for name in ("fedavg", "moon") for seed in (1, 2)}


NAMES = {"algorithm = fedavg": "FedAvg", "algorithm = moon": "MOON"}


def view(console=None, quiet=False):
    return LiveView("tides", ROUNDS, console or Console(file=StringIO()), quiet, NAMES)


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
    fedavg, moon = (line.split() for line in text.splitlines() if "1,200" in line)
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
    assert "FedAvg" not in shown(live)
    assert "3/12 rounds" in shown(live)


def test_fits_a_narrow_window():
    live = view()
    live.watch(news("fedavg", 0, 0.5))
    lines = shown(live, 56).splitlines()
    assert len(lines) == 3  # nothing is folded
    assert all(len(line) <= 56 for line in lines)
    assert lines[-1].startswith("FedAvg")
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
    assert "60.0%" in file.getvalue()
    assert file.getvalue().endswith("\x1b[1A\x1b[2K")  # the last line is erased again


def results(*cells, seeds=2):
    """Results with a row for each of these: settings, then its metrics, equal for all seeds."""
    rows = [
        ResultRow(
            n, labelled(settings), settings, {}, range(seeds), dict.fromkeys(range(seeds), metrics)
        )
        for n, (settings, metrics) in enumerate(cells)
    ]
    target = 0.5 if any("rounds_to_target" in metrics for _, metrics in cells) else None
    return Results({"study": "tides", "seeds": list(range(seeds))}, rows, [], target)


def metrics(names, value=0.0123):
    return dict.fromkeys(names.split(), value)


def titles(found):
    return [column.header for column in result_table(found).columns]


def bold(found):
    """Where the numbers of the table are bold."""
    columns = [list(column.cells) for column in result_table(found).columns[len(found.keys) :]]
    return [[cell.style == "bold" for cell in row] for row in zip(*columns, strict=True)]


def test_the_table_leaves_room_for_the_settings():
    told = metrics("accuracy best_accuracy snapshot_share bytes_up latency joules wall_seconds")
    found = results(({"case": "a long name of a setting"}, told), ({"case": "b"}, told))
    console = Console(file=StringIO(), width=80)
    console.print(result_table(found))
    text = console.file.getvalue()
    assert "tides: mean ± std over 2 seeds" in text
    assert "a long name" in text
    assert "0.0123" in text  # joules, not 0.0
    assert "…" not in text
    assert "MB up" not in text


def test_columns_and_bold_numbers_are_those_of_the_report():
    """The best number of each column; the wall time is no contest, and equal costs are not marked."""
    told = metrics("bytes_up wall_seconds", 7.0)
    rows = [
        ({"lr": 0.1}, {"transition_accuracy": [0.4, 0.9], "accuracy": 0.5, **told}),
        ({"lr": 0.2}, {"transition_accuracy": [0.5, 0.1], "accuracy": 0.7, **told}),
    ]
    found = results(*rows)
    assert titles(found) == ["lr", "after\nchanges %", "accuracy %", "MB up", "seconds"]
    assert bold(found) == [[True, False, False, False], [False, True, False, False]]
    report = tables.result_table(found)
    assert bold(found) == [[entry.best for entry in row.entries] for row in report.rows]


def test_a_study_with_every_column_shows_the_ones_that_matter():
    """Clients that change, a network and noise: joules give way, the epsilon stays."""
    names = "transition_accuracy recovery_rounds accuracy best_accuracy snapshot_share"
    names += " simulated_epsilon bytes_up latency joules wall_seconds undefended_rounds"
    found = titles(results(({}, metrics(names, 123.0))))
    assert "simulated\nepsilon" in found
    assert "accuracy %" in found
    assert "joules" not in found


def test_the_columns_that_a_study_names():
    """In its order; where they do not fit, the last ones are named below the table."""
    rows = [({"lr": lr}, metrics("accuracy loss uploads bytes_up", lr)) for lr in (0.1, 0.2)]
    found = results(*rows)
    found.about["columns"] = ["bytes_up", "loss", "accuracy", "uploads"]
    assert titles(found) == ["lr", "MB up", "loss", "accuracy %", "uploads"]
    text = table(found, "latex")
    assert r"lr & uploaded (MB) & test loss & accuracy (\%) & uploads \\" in text
    assert table(found, "csv").splitlines()[0].split(",")[2::2] == [
        f"{name}_mean" for name in found.columns
    ]
    narrow = result_table(found, 45)
    assert [column.header for column in narrow.columns] == ["lr", "MB up", "loss", "accuracy %"]
    assert narrow.caption == "In the report only: uploads."


def test_columns_that_no_study_has():
    with pytest.raises(ConfigError, match=r"columns must be metrics .* Got 'los'. .* 'loss'"):
        config.study("x", {"columns": ["los"], "train": {"steps": 1}})


def test_differences_to_the_best_setting_by_hand():
    """Seeds 0, 1, 2; the nearest first, with a paired t-test."""
    scores = {"a": (0.5, 0.6, 0.7), "b": (0.4, 0.52, 0.58), "c": (0.49, 0.6, 0.68)}
    rows = [
        ResultRow(n, name, {"case": name}, {}, [0, 1, 2], by_seed)
        for n, (name, known) in enumerate(scores.items())
        for by_seed in [{s: {"accuracy": known[s]} for s in range(3)}]
    ]
    grid = [row.settings for row in rows]
    found = Results({"study": "x", "seeds": [0, 1, 2]}, rows, [], problems=split(grid, []))
    made = pair_table(found)
    assert made.title == "How far a is ahead: accuracy, in points"
    cells = [list(column.cells) for column in made.columns]
    assert [str(name) for name in cells[0]] == ["c", "b"]
    assert cells[1] == ["+1.0", "+10.0"]
    margin = 4.302653 * 2 / 3**0.5  # of 10, 8 and 12 points: their standard deviation is 2
    assert cells[2][1] == f"{10 - margin:+.1f} to {10 + margin:+.1f}"
    assert (
        pair_table(results(({"lr": 1}, metrics("accuracy")), ({"lr": 2}, metrics("accuracy"))))
        is None
    )


def test_costs_to_an_accuracy_that_all_settings_reach():
    told = metrics("accuracy rounds_to_target joules latency", 3.0)
    found = results(({"lr": 0.1}, told), ({"lr": 0.2}, told))
    assert titles(found) == ["lr", "accuracy %", "rounds\nto 50 %"]
