"""A study as a whole: files, summary, and the promise that results depend on the seed alone."""

import json
from statistics import fmean, stdev

import pytest
from safetensors.torch import load_file

from fedtide import config
from fedtide.core.errors import DataError, OutputError, TrainingError
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import read
from fedtide.run.execute import run_study

TABLE = {
    "data": {"partition": {"kind": "dirichlet", "alpha": 0.5}},
    "population": {"kind": "alternating", "clients": 4, "sessions": 3, "rounds": 3},
    "train": {"steps": 2, "lr": 0.2},
    "transition_rounds": 2,
    "compare": {"algorithm": ["fedavg", "scaffold"], "seed": [1, 2]},
}


def study(**changes):
    return config.study("small", {**TABLE, **changes}, "# source\n")


def without_seconds(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_study(study(), tmp_path_factory.mktemp("out"), jobs=1)


def test_every_promised_file_is_there(finished):
    folder, summary = finished
    assert (folder.path / "study.toml").read_text() == "# source\n"
    assert json.loads((folder.path / "summary.json").read_text()) == summary
    assert "<html" in (folder.path / "report.html").read_text()
    run = folder.path / "cells" / "02-algorithm-scaffold" / "seed-2"
    assert sorted(p.name for p in run.iterdir()) == [
        "checkpoints",
        "identity.json",
        "journal.jsonl",
        "model.safetensors",
        "run.json",
    ]
    assert load_file(run / "model.safetensors")["embed.1.weight"].shape == (10, 64)
    assert not list(folder.path.rglob(".*"))  # no temporary file remains


def test_the_summary_can_be_recomputed_from_the_journals(finished):
    folder, summary = finished
    cell = summary["cells"][0]
    assert cell["settings"] == {"algorithm": "fedavg"}
    by_seed = [
        [
            line["accuracy"]
            for line in read(
                folder.path / "cells/01-algorithm-fedavg" / f"seed-{s}" / "journal.jsonl"
            )
        ]
        for s in (1, 2)
    ]
    last_five = [fmean(run[-5:]) for run in by_seed]
    assert cell["metrics"]["accuracy"]["values"] == pytest.approx(last_five)
    assert cell["metrics"]["accuracy"]["mean"] == pytest.approx(fmean(last_five))
    assert cell["metrics"]["accuracy"]["std"] == pytest.approx(stdev(last_five))
    assert cell["metrics"]["best_accuracy"]["values"] == [max(run) for run in by_seed]
    # sessions begin at rounds 3 and 6; two rounds of each count
    after = [[fmean(run[3:5]), fmean(run[6:8])] for run in by_seed]
    assert cell["metrics"]["transition_accuracy"]["values"] == [pytest.approx(run) for run in after]
    assert cell["metrics"]["transition_accuracy"]["mean"] == pytest.approx(fmean(map(fmean, after)))
    assert cell["metrics"]["transition_accuracy"]["by_start"]["mean"] == pytest.approx(
        [fmean(column) for column in zip(*after, strict=True)]
    )
    assert cell["metrics"]["wall_seconds"]["mean"] > 0


def test_parallel_runs_equal_serial_runs_bit_for_bit(finished, tmp_path):
    serial, _ = finished
    parallel, _ = run_study(study(), tmp_path, jobs=2)
    files = sorted(p.relative_to(serial.path) for p in serial.path.rglob("*") if p.is_file())
    assert files == sorted(
        p.relative_to(parallel.path) for p in parallel.path.rglob("*") if p.is_file()
    )
    for file in files:
        if file.suffix == ".safetensors":
            assert (serial.path / file).read_bytes() == (parallel.path / file).read_bytes()
        if file.suffix == ".jsonl":
            lines = [without_seconds(read(folder.path / file)) for folder in (serial, parallel)]
            assert lines[0] == lines[1]


def test_every_run_of_a_study_is_kept(tmp_path):
    """Three runs with different settings: three folders, the first as it was."""
    for lr in (0.1, 0.2, 0.3):
        run_study(study(train={"steps": 2, "lr": lr}, compare={"seed": [1]}), tmp_path, jobs=1)
    kept = StudyFolder.all_of(tmp_path / "small")
    assert [folder.path.name for folder in kept] == ["3", "2", "1"]
    rates = [f.read_json("settings.json")["cells"][0]["train"]["lr"] for f in kept]
    assert rates == [0.3, 0.2, 0.1]
    assert StudyFolder.newest(tmp_path / "small").path == tmp_path / "small/3"
    assert StudyFolder.newest(tmp_path / "small/2").path == tmp_path / "small/2"


def test_the_tenth_run_is_newer_than_the_ninth_and_a_killed_one_is_none(tmp_path):
    for number in (1, 9, 10):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "study.json").touch()
    assert StudyFolder.begin(tmp_path).path.name == "11"  # nothing is in it yet
    assert StudyFolder.newest(tmp_path).path.name == "10"
    assert StudyFolder.begin(tmp_path).path.name == "12"


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "small/1").mkdir(parents=True)
    (tmp_path / "small/1/thesis.txt").write_text("years of work")
    folder, _ = run_study(study(compare={"seed": [1]}), tmp_path, jobs=1)
    assert folder.path == tmp_path / "small/2"
    assert [path.name for path in (tmp_path / "small/1").iterdir()] == ["thesis.txt"]
    assert (tmp_path / "small/1/thesis.txt").read_text() == "years of work"


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="--out must be a folder that can be written"):
        run_study(study(), tmp_path / "file", jobs=1)


def test_missing_data_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTIDE_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="mnist"):
        run_study(study(data={"name": "mnist"}), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_loss_that_is_no_number_names_the_round_and_the_client(tmp_path, jobs):
    broken = study(train={"steps": 2, "lr": 1e38})
    with pytest.raises(TrainingError, match=r"round \d+, client \d+: .* Try a smaller train.lr"):
        run_study(broken, tmp_path, jobs=jobs)
