"""The results of a study, from which summary.json, terminal, report and CSV files are made."""

import json
from statistics import fmean, stdev

import pytest

import fedtide
from fedtide import config
from fedtide.core.errors import ConfigError
from fedtide.measure import results as module
from fedtide.measure.provenance import made_by
from fedtide.measure.recovery import Recovery, against
from fedtide.measure.results import Results, ranked
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study
from tests.show.made import folder, run

STUDY = """
transition_rounds = 1
[population]
kind = "alternating"
clients = 3
sessions = 2
rounds = 2
[train]
steps = 1
[compare]
start = ["previous", "average"]
seed = [1, 2]
"""


@pytest.fixture
def two(tmp_path):
    """Two settings, two seeds, two sessions of two rounds."""
    return folder(
        tmp_path,
        [
            (
                {"start": "average"},
                {
                    1: run([0.2, 0.4, 0.5, 0.7], per_session=2),
                    2: run([0.2, 0.4, 0.6, 0.8], per_session=2),
                },
            ),
            (
                {"start": "previous"},
                {
                    1: run([0.2, 0.4, 0.1, 0.3], per_session=2),
                    2: run([0.2, 0.4, 0.2, 0.9], per_session=2),
                },
            ),
        ],
    )


def test_numbers_over_the_seeds_by_hand(two):
    first, second = Results.read(two).rows
    accuracy = [fmean([0.2, 0.4, 0.5, 0.7]), fmean([0.2, 0.4, 0.6, 0.8])]
    assert first.numbers["accuracy"] == (fmean(accuracy), stdev(accuracy), 2)
    assert first.numbers["transition_accuracy"].mean == pytest.approx((0.6 + 0.7) / 2)
    assert [spread.mean for spread in second.transitions] == pytest.approx([(0.2 + 0.55) / 2])
    # 0.95 of the peaks 0.7 and 0.8: never reached with seed 1, in the second round with seed 2.
    assert [spread.mean for spread in second.recoveries] == [(3 + 2) / 2]
    assert [row.number for row in ranked([second, first])] == [0, 1]
    assert first.final


def test_the_summary_has_every_metric_with_its_values(two):
    found = Results.read(two)
    summary = found.summary()
    assert summary["study"] == "tides"
    assert [cell["settings"] for cell in summary["cells"]] == [
        {"start": "average"}, {"start": "previous"}
    ]  # fmt: skip
    for row, cell in zip(found.rows, summary["cells"], strict=True):
        known = cell["metrics"]["accuracy"]
        assert known["values"] == [row.metrics[seed]["accuracy"] for seed in (1, 2)]
        assert row.numbers["accuracy"][:2] == (known["mean"], known["std"])
    first, second = found.rows
    beside = [
        against(second.runs[seed], first.runs[seed], Recovery(), 2).metrics for seed in (1, 2)
    ]
    assert summary["cells"][1]["metrics"]["accumulated_gain"]["values"] == [
        each["accumulated_gain"] for each in beside
    ]


def test_costs_to_the_common_target_are_not_in_the_summary(tmp_path):
    cells = [({"lr": 1}, {1: run([0.3, 0.6])}), ({"lr": 2}, {1: run([0.7, 0.5])})]
    found = Results.read(folder(tmp_path, cells, seeds=[1]))
    assert found.target == 0.6
    assert [row.numbers["rounds_to_target"].mean for row in found.rows] == [2, 1]
    assert "rounds_to_target" not in found.summary()["cells"][0]["metrics"]


def test_a_target_of_the_study_by_hand(tmp_path):
    """Settings of which a seed misses it have no number; a sentence names them."""
    cells = [
        ({"lr": 1}, {1: run([0.3, 0.6]), 2: run([0.3, 0.4, 0.61])}),
        ({"lr": 2}, {1: run([0.7, 0.5]), 2: run([0.5, 0.5])}),
    ]
    found = Results.read(folder(tmp_path, cells, target=0.6))
    first, second = found.rows
    assert first.numbers["rounds_to_target"] == (2.5, pytest.approx(0.5**0.5), 2)
    assert "rounds_to_target" not in second.numbers
    assert found.cautions == [
        "Not every run reaches 60 %: lr = 2 (1 of 2 seeds). Those settings have no number of rounds to it."
    ]
    kept = found.summary()["cells"][0]["metrics"]["rounds_to_target"]
    assert kept == {"mean": 2.5, "std": pytest.approx(0.5**0.5), "values": [2.0, 3.0]}
    other = Results.read(StudyFolder(tmp_path), {"target": 0.5})
    assert [row.numbers["rounds_to_target"].mean for row in other.rows] == [2.5, 1.0]
    assert other.cautions == []


@pytest.mark.parametrize("target", [0, 1.5, -1])
def test_targets_that_no_accuracy_reaches(target):
    with pytest.raises(
        ConfigError, match=r"target must be an accuracy in \(0, 1\], such as 0.6. Got"
    ):
        config.study("x", {"target": target, "train": {"steps": 1}})


def test_what_made_the_results(tmp_path):
    """Versions and checksums; where seeds differ, those of all."""
    path = tmp_path / "tide.toml"
    path.write_text(STUDY)
    outcome = run_study(config.load(path), tmp_path / "runs", jobs=1)
    e = config.load(path).cells[0].experiment
    made = [cell["made_by"] for cell in outcome.summary["cells"]]
    assert made[0]["data"] == e.data.checksum()
    assert made[0]["fedtide"] == fedtide.__version__
    assert made[0]["settings"] != made[1]["settings"]
    page = (outcome.folder.path / "report.html").read_text()
    for cell in made:
        assert f"<td>{cell['settings'][:8]}</td>" in page
    assert made_by([{"source": "a"}, {"source": "b"}, {}]) == {"source": "a and b"}


def test_seeds_with_different_numbers_of_starts(tmp_path):
    """Each seed's starts are averaged first; a table by start would compare what does not correspond."""
    runs = {1: run([0.5, 0.2, 0.8], per_session=1), 2: run([0.5, 0.7, 0.3], per_session=2)}
    (row,) = Results.read(folder(tmp_path, [({}, runs)])).rows
    assert row.numbers["transition_accuracy"].mean == pytest.approx((0.5 + 0.3) / 2)
    assert (row.transitions, row.recoveries) == ([], [])


def test_a_run_that_is_not_finished_counts_only_where_none_is(tmp_path):
    runs = {1: run([0.4]), 2: run([0.8])}
    made = folder(
        tmp_path, [({"a": 1}, runs), ({"a": 2}, runs)], unfinished=[(0, 2), (1, 1), (1, 2)]
    )
    first, second = Results.read(made).rows
    assert (first.numbers["accuracy"].mean, first.final) == (0.4, True)
    assert (second.numbers["accuracy"].mean, second.final) == (pytest.approx(0.6), False)


def test_everything_is_computed_once(tmp_path, monkeypatch):
    """Metrics when a run ends; the comparison with the first setting for summary and report together."""
    calls = []
    beside = module.beside
    monkeypatch.setattr(module, "beside", lambda *given: calls.append(1) or beside(*given))
    monkeypatch.setattr(module, "metrics", lambda *run: calls.append("again"))
    path = tmp_path / "tide.toml"
    path.write_text(STUDY)
    outcome = run_study(config.load(path), tmp_path / "runs", jobs=1)
    written = json.loads((outcome.folder.path / "summary.json").read_text())
    assert calls == [1]
    assert outcome.summary == written
    assert (outcome.folder.path / "report.html").exists()
    assert Results.read(StudyFolder(outcome.folder.path)).summary() == written
