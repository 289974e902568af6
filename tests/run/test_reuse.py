"""Nothing is computed twice: results of earlier folders of a study are taken over, and only those."""

import json
import os
import sys
from pathlib import Path

import pytest

from fedtide import config
from fedtide.core.errors import ConfigError
from fedtide.record.checkpoint import Stopped
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import read
from fedtide.run import reuse
from fedtide.run.execute import pays, run_study
from fedtide.run.origin import origin, source_checksum

origins = sys.modules["fedtide.run.origin"]  # fedtide.run is also a function

TABLE = {
    "population": {"kind": "fixed", "clients": 4, "rounds": 4},
    "train": {"steps": 2, "lr": 0.2, "model": "linear"},
    "compare": {"algorithm": ["fedavg", "scaffold"], "seed": [1, 2]},
}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(reuse, "is_dirty", lambda: False)


def study(seed=(1, 2), algorithm=("fedavg", "scaffold"), **changes):
    compare = {"algorithm": list(algorithm), "seed": list(seed)}
    return config.study("small", {**TABLE, "compare": compare, **changes})


class Counted:
    """Runs a study and counts the rounds that were computed, not told again."""

    def __init__(self, out, monkeypatch):
        self.out, self.runs = out, []
        from fedtide.run import execute

        real = execute.run

        def run(e, *rest):
            self.runs.append((type(e.algorithm).__name__, e.seed))
            return real(e, *rest)

        monkeypatch.setattr(execute, "run", run)

    def __call__(self, plan, **more):
        self.runs.clear()
        return run_study(plan, self.out, jobs=1, **more)


@pytest.fixture
def counted(tmp_path, monkeypatch):
    return Counted(tmp_path, monkeypatch)


def content(path):
    """All files of a study's runs but times."""
    lines = {}
    for journal in sorted(path.rglob("journal.jsonl")):
        kept = [{k: v for k, v in line.items() if k != "seconds"} for line in read(journal)]
        lines[str(journal.parent.relative_to(path))] = kept
    return lines


def test_two_more_seeds_compute_two_runs_of_each_cell(counted):
    first = counted(study())
    assert len(counted.runs) == 4
    second = counted(study(seed=(1, 2, 3, 4)), resume=True)
    assert counted.runs == [("FedAvg", 3), ("FedAvg", 4), ("Scaffold", 3), ("Scaffold", 4)]
    assert second.taken.whole == {first.folder.path: 4}
    assert second.folder.path.name == "2"
    assert second.results.rows[0].finished == [1, 2, 3, 4]
    alone = run_study(study(seed=(1, 2, 3, 4)), counted.out / "elsewhere", jobs=1)
    assert content(second.folder.path) == content(alone.folder.path)


def test_a_changed_cell_computes_one_without_being_asked(counted):
    counted(study(seed=[1]))
    changed = counted(study(seed=[1], algorithm=("fedavg", "fedprox")))
    assert counted.runs == [("FedProx", 1)]
    assert changed.taken.sentence.endswith("small/1: same settings, code and data.")
    again = counted(study(seed=[1], algorithm=("fedprox", "scaffold", "fedavg")))  # another order
    assert counted.runs == []
    assert len(again.taken.whole) == 2  # each from where it is
    identity = json.loads(next(again.folder.path.rglob("01-*/seed-1/identity.json")).read_text())
    assert (identity["cell"], identity["label"]) == (1, "algorithm = fedprox")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"train": {"steps": 2, "lr": 0.2, "model": "linear"}}, {"train": {"steps": 2, "lr": 0.3}}),
        ({"transition_rounds": 3}, {"transition_rounds": 4}),
        ({}, {"data": {"partition": "shards"}}),
    ],
)
def test_other_settings_are_computed(counted, old, new):
    counted(study(seed=[1], algorithm=["fedavg"], **old))
    counted(study(seed=[1], algorithm=["fedavg"], **new))
    assert len(counted.runs) == 1


def test_settings_that_do_not_matter_are_not_compared(counted):
    counted(study(seed=[1]))
    counted(study(seed=[1], checkpoint={"seconds": 5}, engine={"workers": 2}))
    assert counted.runs == []


def test_never_with_edited_source(counted, monkeypatch):
    counted(study(seed=[1]))
    monkeypatch.setattr(reuse, "is_dirty", lambda: True)
    done = counted(study(seed=[1]))
    assert len(counted.runs) == 2
    assert "files of FedTide itself differ" in done.taken.sentence


def test_asked_to_compute_everything(counted):
    counted(study(seed=[1]))
    done = counted(study(seed=[1]), reuse=False)
    assert len(counted.runs) == 2
    assert done.taken.sentence == ""


def test_other_data_or_code_are_computed(counted, monkeypatch):
    e = study().cells[0].experiment
    made = origin(e, 10)
    assert made["data"] == e.data.load().checksum()
    monkeypatch.setattr(type(e.data), "checksum", lambda self: "other")
    assert origin(e, 10)["key"] != made["key"]
    monkeypatch.undo()
    assert origin(e, 10) == made
    source_checksum.cache_clear()
    monkeypatch.setattr(origins, "_files_checksum", lambda paths: "other")
    assert origin(e, 10)["key"] != made["key"]
    source_checksum.cache_clear()


def test_own_files_and_what_they_import_count(tmp_path, monkeypatch):
    folder = tmp_path / "files_that_count"
    folder.mkdir()
    (folder / "helper.py").write_text("FACTOR = 1.0\n")
    (folder / "own.py").write_text(
        "from dataclasses import dataclass\nfrom fedtide.extend import FedAvg\n"
        "from files_that_count.helper import FACTOR\n\n\n@dataclass(frozen=True, kw_only=True)\n"
        "class Own(FedAvg):\n    pass\n"
    )
    file = folder / "own.toml"
    file.write_text('[train]\nsteps = 1\n[algorithm]\nkind = "own.py:Own"\n')
    monkeypatch.setattr("sys.path", [*sys.path])
    e = config.load(file).cells[0].experiment
    made = origin(e, 10)
    assert made["own_files"]
    (folder / "helper.py").write_text("FACTOR = 2.0\n")
    assert origin(e, 10)["key"] != made["key"]


def test_a_file_that_a_setting_names_counts(counted, tmp_path):
    """A trace that has changed makes other runs."""
    trace = tmp_path / "visits.csv"
    changes = {"population": {"kind": "trace", "file": str(trace), "rounds": 4}}
    for text, computed in (("0,0,4\n1,1,4\n", 2), ("0,0,4\n1,1,4\n", 0), ("0,0,4\n1,2,4\n", 2)):
        trace.write_text("client,arrive,leave\n" + text)
        counted(study(seed=[1], **changes))
        assert len(counted.runs) == computed


def test_results_say_what_made_them(counted):
    done = counted(study(seed=[1]))
    identity = json.loads(next(done.folder.path.rglob("identity.json")).read_text())
    made = identity["origin"]
    assert made["fedtide"] == done.results.about["environment"]["fedtide"]
    assert made["source"] == source_checksum()
    assert len(made["data"]) == len(made["settings"]) == 32


@pytest.mark.parametrize("every", [1, 3])
def test_more_rounds_continue_bit_for_bit(counted, every):
    """Also where the last round of the shorter run was tested only because it was the last."""
    more = {"evaluation": {"every": every}, "train": {**TABLE["train"], "schedule": "step"}}
    first = counted(study(**more))
    before = content(first.folder.path)
    rounds = []
    longer = {"population": {**TABLE["population"], "rounds": 9}, **more}
    done = counted(study(**longer), resume=True, watch=lambda news: rounds.append(news.line["t"]))
    assert done.taken.begun == {first.folder.path: 4}
    alone = run_study(study(**longer), counted.out / "elsewhere", jobs=1)
    assert content(done.folder.path) == content(alone.folder.path)
    models = [sorted(f.path.rglob("model.safetensors")) for f in (done.folder, alone.folder)]
    assert [m.read_bytes() for m in models[0]] == [m.read_bytes() for m in models[1]]
    assert content(first.folder.path) == before  # the shorter runs are still there


@pytest.mark.parametrize(
    "more",
    [
        {"train": {**TABLE["train"], "schedule": "cosine"}},
        {"data": {"stores": {"kind": "fifo"}}},
    ],
)
def test_rounds_that_depend_on_the_length_are_computed_anew(counted, more):
    counted(study(seed=[1], algorithm=["fedavg"], **more))
    longer = {"population": {**TABLE["population"], "rounds": 6}, **more}
    done = counted(study(seed=[1], algorithm=["fedavg"], **longer))
    assert done.taken.sentence == ""
    alone = run_study(study(seed=[1], algorithm=["fedavg"], **longer), counted.out / "b", jobs=1)
    assert content(done.folder.path) == content(alone.folder.path)


def test_more_sessions_continue(counted):
    def tide(sessions):
        population = {"kind": "alternating", "clients": 3, "sessions": sessions, "rounds": 3}
        return study(seed=[1], algorithm=["scaffold"], population=population)

    counted(tide(2))
    done = counted(tide(4), resume=True)
    assert sum(done.taken.begun.values()) == 1
    alone = run_study(tide(4), counted.out / "elsewhere", jobs=1)
    assert content(done.folder.path) == content(alone.folder.path)


def test_an_unfinished_run_goes_on_in_a_larger_study(counted):
    calls = []

    def stop():
        calls.append(0)
        return len(calls) > 3

    with pytest.raises(Stopped):
        counted(study(seed=[1]), stop=stop)
    done = counted(study(seed=[1, 2]), resume=True)
    assert sum(done.taken.begun.values()) == 1
    alone = run_study(study(seed=[1, 2]), counted.out / "elsewhere", jobs=1)
    assert content(done.folder.path) == content(alone.folder.path)


def test_resume_refuses_what_is_no_extension(counted):
    counted(study(seed=[1, 2]))
    with pytest.raises(ConfigError, match="same settings"):
        counted(study(seed=[2, 3]), resume=True)
    with pytest.raises(ConfigError, match="same settings"):
        counted(study(algorithm=["fedavg", "fedprox"]), resume=True)


def test_removing_a_folder_leaves_the_others_whole(counted):
    first = counted(study(seed=[1]))
    second = counted(study(seed=[1, 2]))
    before = content(second.folder.path)
    for path in sorted(first.folder.path.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert content(second.folder.path) == before


def test_without_links_files_are_copied(counted, monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    counted(study(seed=[1]))
    monkeypatch.setattr(os, "link", refuse)
    done = counted(study(seed=[1, 2]))
    assert len(counted.runs) == 2
    assert all(path.stat().st_nlink == 1 for path in done.folder.path.rglob("run.json"))


def test_continued_with_other_code_has_no_key(tmp_path):
    made = StudyFolder(tmp_path).claim(0, "all", 1, {"key": "a", "fedtide": "1"})
    StudyFolder(tmp_path).claim(0, "all", 1, {"key": "b", "fedtide": "2"})
    found = json.loads((made / "identity.json").read_text())["origin"]
    assert found == {
        "key": "",
        "stem": "",
        "fedtide": "2",
        "begun_by": {"key": "a", "fedtide": "1"},
    }


def test_names(counted):
    counted(study(seed=[1]), name="Small rate!")
    counted(study(seed=[1]))
    assert sorted(p.name for p in (counted.out / "small").iterdir()) == ["1-small-rate", "2"]
    for words in ("small/1", "small/small-rate", "small/Small rate!", "small/1-small-rate"):
        assert StudyFolder.newest(counted.out / words).path.name == "1-small-rate"
    assert StudyFolder.newest(counted.out / "small").path.name == "2"
    assert StudyFolder.newest(Path("nowhere/at-all")).path == Path("nowhere/at-all")


@pytest.mark.parametrize(
    ("seconds", "runs", "cores", "expected"),
    [(0.5, 8, 2, False), (5, 8, 2, True), (100, 1, 2, False), (100, 2, 1, False), (13, 2, 2, True)],
)
def test_processes_of_their_own_only_where_they_pay(seconds, runs, cores, expected):
    assert pays(seconds, runs, cores) is expected


def test_short_runs_need_no_other_process(tmp_path, monkeypatch):
    from fedtide.run import execute

    def refuse(*_):
        raise AssertionError("no process was needed")

    monkeypatch.setattr(execute, "in_processes", refuse)
    run_study(study(), tmp_path)


def test_long_runs_go_to_other_processes(tmp_path, monkeypatch):
    from fedtide.run import execute

    left = []
    monkeypatch.setattr(execute, "STARTING", -1.0)
    monkeypatch.setattr(execute, "cpu_count", lambda: 2)
    monkeypatch.setattr(execute, "in_processes", lambda work, tasks, *rest: left.extend(tasks))
    run_study(study(seed=[1, 2, 3]), tmp_path)
    assert len(left) == 4  # two of six were run to know how long they take
