"""Trackers for real: event files read back, the SQLite store queried, offline runs opened."""

import json
import sqlite3
import warnings

import pytest

from fedtide import config, run_study
from fedtide.core.errors import ConfigError
from fedtide.record.checkpoint import Stopped
from fedtide.show.trackers import Logbook, Tracked, Tracking, numbers
from fedtide.show.trackers.tensorboard import TensorBoard

STUDY = """
track = [{track}]
[population]
kind = "fixed"
clients = 3
rounds = 3
[train]
steps = 1
[compare]
algorithm = ["fedavg", {{ kind = "fedprox", mu = 1.0 }}]
seed = [5]
"""


def ran(tmp_path, track, jobs=1):
    path = tmp_path / "small.toml"
    path.write_text(STUDY.format(track=track))
    folder, _ = run_study(config.load(path), tmp_path / "runs", jobs=jobs)
    return folder.path


def journals(folder):
    return {
        path.parent.parent.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("cells/*/seed-5/journal.jsonl"))
    }


def test_tensorboard_event_files(tmp_path):
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = ran(tmp_path, '"tensorboard"')
    for cell, lines in journals(folder).items():
        events = loading.EventAccumulator(str(folder / "cells" / cell / "seed-5"))
        events.Reload()
        accuracy = events.Scalars("accuracy")
        assert [event.step for event in accuracy] == [0, 1, 2]
        assert [event.value for event in accuracy] == pytest.approx(
            [line["accuracy"] for line in lines]
        )
        assert "seconds/train" in events.Tags()["scalars"]
        text = events.Tensors("study/text_summary")[0].tensor_proto.string_val[0].decode()
        assert 'kind = "fedprox"' in text


def test_tensorboard_after_a_resumed_run(tmp_path):
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    path, seen = tmp_path / "small.toml", []
    path.write_text(STUDY.format(track='"tensorboard"'))
    study = config.load(path)
    with pytest.raises(Stopped):  # in the second run, after its second round
        run_study(study, tmp_path / "runs", 1, seen.append, stop=lambda: len(seen) == 5)
    folder = run_study(study, tmp_path / "runs", 1, resume=True).folder.path
    first, second = sorted(folder.glob("cells/*/seed-5"))
    assert len(list(first.glob("events*"))) == 1  # it had ended
    events = loading.EventAccumulator(str(second))
    events.Reload()
    assert [event.step for event in events.Scalars("accuracy")] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_mlflow_sqlite_store(tmp_path, capfd):
    pytest.importorskip("mlflow")
    folder = ran(tmp_path, '"mlflow"')
    assert capfd.readouterr() == ("", "")
    with sqlite3.connect(folder / "mlflow.db") as store:
        query = store.execute
        assert ("small",) in query("select name from experiments").fetchall()
        runs = query("select run_uuid, name, status from runs order by name").fetchall()
        assert [run[1:] for run in runs] == [
            ("algorithm = fedavg, seed 5", "FINISHED"),
            ("algorithm = fedprox (mu = 1.0), seed 5", "FINISHED"),
        ]
        for (run, _, _), lines in zip(runs, journals(folder).values(), strict=True):
            found = query(
                "select step, value from metrics where run_uuid = ? and key = 'accuracy' order by step",
                (run,),
            ).fetchall()
            assert found == [(line["t"], line["accuracy"]) for line in lines]
        settings = query("select value from params where key = 'algorithm' order by value")
        assert settings.fetchall() == [("fedavg",), ("fedprox (mu = 1.0)",)]
    store.close()
    assert not (tmp_path / "mlruns").exists()


def records(path):
    """The protocol records of an offline run: LevelDB's log format, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, b""  # after the file's own header
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, part = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def test_wandb_offline_runs(tmp_path, capfd):
    pytest.importorskip("wandb")
    folder = ran(tmp_path, '"wandb"', jobs=2)
    assert capfd.readouterr() == ("", "")
    logged = {}
    for path in (folder / "wandb").glob("offline-run-*/run-*.wandb"):
        found = list(records(path))
        name = next(record.run.display_name for record in found if record.HasField("run"))
        logged[name] = [
            json.loads(item.value_json)
            for record in found
            if record.HasField("history")
            for item in record.history.item
            if "accuracy" in (item.key, *item.nested_key)
        ]
    names = ["algorithm = fedavg, seed 5", "algorithm = fedprox (mu = 1.0), seed 5"]
    lines = journals(folder).values()
    assert logged == {
        name: [line["accuracy"] for line in run] for name, run in zip(names, lines, strict=True)
    }


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_one_that_is_not_installed_is_said_before_the_run(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("fedtide.core.errors.find_spec", lambda name: None)
    path = tmp_path / "small.toml"
    path.write_text(STUDY.format(track=f'"{kind}"'))
    with pytest.raises(ConfigError, match=rf"needs the package {kind}.*fedtide\[track\]"):
        config.load(path)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_store_that_cannot_be_opened_is_said_before_the_run(tmp_path):
    pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'small.toml' / 'a file is no folder.db'}"
    with pytest.raises(ConfigError, match=r"track\.uri must be a store that MLflow can open"):
        ran(tmp_path, f'{{ kind = "mlflow", uri = "{uri}" }}')
    assert not list(tmp_path.glob("runs/small/*/cells/*"))


def test_an_unknown_one_is_an_error_with_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match=r"track\[0\]: 'tensorbord' is not known\. Did you mean"):
        ran(tmp_path, '"tensorbord"')


def test_numbers_of_a_line():
    line = {"t": 3, "loss": None, "lr": 0.1, "clients": [1], "q": True, "seconds": {"train": 2}}
    assert numbers(line) == {"lr": 0.1, "q": 1.0, "seconds/train": 2.0}


class Book(Logbook):
    def __init__(self, fails):
        self.seen, self.fails = [], fails

    def begin(self, run):
        return run.name

    def write(self, page, t, found):
        if self.fails:
            raise OSError("no space left")
        self.seen.append((page, t))

    def end(self, page, finished):
        self.seen.append((page, finished))


@pytest.mark.parametrize("fails", [True, False])
def test_one_that_breaks_down_is_left_out_once(tmp_path, monkeypatch, fails):
    book = Book(fails)
    monkeypatch.setattr(TensorBoard, "open", lambda self, *about: book)
    run = Tracked("s", "cell", {}, 1, 2, tmp_path)
    runs = {(0, 1): run, (0, 2): run._replace(seed=2)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Tracking([TensorBoard()], "s", "", tmp_path, runs) as tracking:
            for key in runs:
                tracking.write(key, {"t": 0})
            tracking.write((0, 1), {"t": 1})
    if fails:
        assert [str(w.message) for w in caught] == [
            "track: TensorBoard stopped following the study (OSError: no space left). "
            "The journals of the study are complete."
        ]
    else:  # the first run reached its last round, the second was cut short
        first, second = "cell, seed 1", "cell, seed 2"
        assert book.seen == [(first, 0), (second, 0), (first, 1), (first, True), (second, False)]
