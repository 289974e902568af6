"""At 80 columns nothing is cut: tables of run, cost, list, for every study of the package."""

import tomllib
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, Group
from rich.text import Text

from fedtide import config
from fedtide.cli.run import data_lines, planned, range_lines
from fedtide.data.datasets import DATASETS
from fedtide.measure.problems import split
from fedtide.measure.results import ResultRow, Results
from fedtide.record.line import Progress
from fedtide.run.kinds import KINDS, ROOMS
from fedtide.run.study import described
from fedtide.show.kinds import explained
from fedtide.show.terminal import LiveView, costs, pair_table, result_table
from tests.cli.command import fedtide
from tests.show.made import line
from tests.worlds import study_files

ROOT = Path(__file__).parent.parent.parent
STUDIES = study_files(ROOT / "studies")
WIDE = {
    "accuracy": 0.8512,
    "best_accuracy": 0.9034,
    "transition_accuracy": [0.5],
    "recovery_rounds": [12.5],
    "recovery_seconds": [1234.5],
    "recovery_joules": [1234.5],
    "recovery_bytes": [123_456_789.0],
    "waiting_rounds": 12.5,
    "unserved": 0.25,
    "start_bytes": 123_456_789.0,
    "start_seconds": 1234.5,
    "start_joules": 98_765.4,
    "bytes_up": 123_456_789.0,
    "latency": 12_345.6,
    "joules": 98_765.4,
    "wall_seconds": 1234.5,
    "rounds_to_target": 123.0,
    "seconds_to_target": 1234.0,
    "joules_to_target": 1234.0,
    "epsilon": 12.3,
    "snapshot_share": 0.25,
}


def rendered(part, width=80):
    console = Console(file=StringIO(), width=width)
    console.print(part)
    return console.file.getvalue()


def results(plan, metrics=WIDE, scores=()):
    found = dict.fromkeys(plan.seeds, metrics)
    rows = [
        ResultRow(n, cell.label, cell.settings, {}, list(plan.seeds), found)
        for n, cell in enumerate(plan.cells)
    ]
    about = {"study": plan.name, "seeds": list(plan.seeds), "transition_rounds": 1}
    about |= {"scores": scores} if scores else {}
    problems = split([row.settings for row in rows], described(plan)["cells"])
    return Results(about, rows, [], problems=problems)


def letters(text):
    return "".join(text.split())


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_results_and_costs_of_every_study_fit(path):
    plan = config.load(path)
    found = results(plan)
    text = rendered(result_table(found, 80))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert letters(text).count("85.1") >= len(plan.cells)  # no number is cut
    for row in found.rows:  # no word is cut
        said = (
            {*found.name(row).split()},
            {w for value in row.words.values() for w in value.split()},
        )
        assert any(all(word in text for word in words) for words in said)
    if (pairs := pair_table(found, 80)) is not None:
        beside = rendered(pairs)
        assert max(map(len, beside.splitlines())) <= 80
        assert "…" not in beside
        assert letters(beside).count("+0.0to+0.0") == len(pairs.rows)  # no number is cut
        named = [found.name(row) for row in found.rows]
        for row in pairs.columns[0].cells:  # no word is cut
            assert str(row) in named
            assert all(word in beside for word in str(row).split())
    for metric in ("bytes_up", "best_accuracy"):  # what is left out is named
        title = {"bytes_up": "uploaded (MB)", "best_accuracy": "best accuracy (%)"}[metric]
        short = {"bytes_up": "MB up", "best_accuracy": "best %"}[metric]
        shown = short in text or metric == "best_accuracy"  # sessions have no best accuracy
        assert shown or title in " ".join(text.split())
    price = {
        "take_part": 72.1,
        "asked": 100.0,
        "seconds": {"mean": 200.0, "std": 2.8e-15},
        "joules": {"mean": 1234.56, "std": 5.4},
        "seconds_by_phase": {"down": 0.0, "compute": 123.4, "up": 0.00123},
        "joules_by_phase": {"down": 0.0, "compute": 9.53e-05, "up": 43.1},
    }
    priced = rendered(costs(plan.name, [c.settings for c in plan.cells], [price] * len(plan.cells)))
    assert max(map(len, priced.splitlines())) <= 80
    assert "…" not in priced
    assert "± 2.8e-15" not in priced  # rounding, no spread
    assert letters(priced).count("9.53e-05") == len(plan.cells)
    for name in plan.names.values():
        assert all(word in priced for word in name.split() if len(word) <= 16), name
    checked = [*planned(plan), *data_lines(plan), *range_lines(plan)]
    said = rendered(Group(*map(Text, checked)))
    assert max(map(len, said.splitlines())) <= 80
    assert letters(said) == letters("".join(checked))


def test_the_lists_of_all_kinds_fit(tmp_path):
    for room in ("datasets", *ROOMS):
        done = fedtide("list", room, cwd=tmp_path, COLUMNS="80")
        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "…" not in done.stdout
        kinds = ROOMS[room].built_in if room in ROOMS else DATASETS
        first = {row.partition(" ")[0] for row in done.stdout.splitlines()}
        assert set(kinds) <= first
    said = fedtide("data", cwd=tmp_path, COLUMNS="80").stdout
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_progress_of_every_study_fits(path):
    """The bar and the table of running runs, with the longest names, in the middle of a study."""
    plan = config.load(path)
    rounds = {(r.label, r.experiment.seed): r.experiment.population.length for r in plan.runs}
    console = Console(file=StringIO(), width=80, force_terminal=True)
    live = LiveView(plan.name, rounds, console, quiet=True, named=plan.names)
    for run in plan.runs[:4]:
        news = line(0, 0.1234, cohort=1000, population=10_000)
        live.watch(Progress(run.label, run.experiment.seed, news, run.cell))
    shown = rendered(live.view())
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("1,000 of 10,000") == len(plan.runs[:4])
    assert "…" not in shown


@pytest.mark.parametrize("room", ROOMS)
def test_every_kind_is_explained(room):
    for name, kind in ROOMS[room].built_in.items():
        said = list(explained(room, name, kind, config.settings(kind), KINDS))
        text = "\n".join(part for _, part in said)
        for key in config.settings(kind):
            assert f"  {key}: " in text, (room, name, key)
        assert said[0] == ("bold", name)
        assert f'kind = "{name}"' in said[-1][1]


@pytest.mark.parametrize(
    ("room", "kind", "title"),
    [
        ("algorithms", "osafl", "Online-Score-Aided Federated Learning"),
        ("algorithms", "fedagg", "Adaptive Federated Learning with Aggregated Gradients"),
        ("starts", "similarity", "Dynamic Device Arrival and Departure"),
        ("participation", "fast", "Unleashing Arbitrary Client Participation"),
    ],
)
def test_the_paper_is_named(room, kind, title):
    found = ROOMS[room][kind]
    said = [text for _, text in explained(room, kind, found, config.settings(found), KINDS)]
    assert any(title in text for text in said)


def test_an_explanation_has_values_defaults_paper_and_an_example():
    kind = ROOMS["algorithms"]["fedprox"]
    said = [
        text for _, text in explained("algorithms", "fedprox", kind, config.settings(kind), KINDS)
    ]
    assert any("Federated Optimization in Heterogeneous Networks" in text for text in said)
    assert "  mu: number; default 0.01" in said
    assert '  weights: "examples" or "equal"; default "examples"' in said
    example = said[-1]
    table = tomllib.loads(example)
    assert config.study("x", {**table, "train": {"steps": 1}}).cells


def test_many_scores_leave_room_for_the_settings():
    """Scores that a study names, and those of clients, are left out from the right; the first score stays."""
    names = ("f1-macro", "auroc", "average-precision", "matthews", "calibration-error", "recall")
    clients = ("client_mean", "client_worst", "personal_mean", "personal_worst")
    losses = [{"kind": "focal", "gamma": 2.0}, {"kind": "focal", "gamma": 4.0}]
    table = {
        "task": {"metrics": list(names)},
        "population": {"kind": "fixed", "clients": 4, "rounds": 2},
        "train": {"steps": 1},
        "compare": {"task.loss": losses, "seed": [1, 2, 3]},
    }
    found = results(
        config.study("many", table),
        dict.fromkeys(("score", "mean_score", *names, *clients), 0.123456),
        [{"name": name, "larger": True} for name in names],
    )
    text = rendered(result_table(found, 80))
    assert "…" not in text
    assert "focal (gamma = 4.0)" in text
    assert "f1-macro" in text.partition("───")[0]
    assert "recall" in text.partition("In the report only")[2]
