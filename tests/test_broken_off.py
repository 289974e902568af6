"""Studies that break off: stopped, killed, resumed, left half-way, on a disk that fills up."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtide import config
from fedtide.cli import app
from fedtide.core.errors import ConfigError, OutputError
from fedtide.record.checkpoint import Stopped
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import read
from fedtide.study import run_study

STUDY = """
[population]
kind = "alternating"
clients = 4
sessions = 4
rounds = 30
[participation]
kind = "fast"
adaptive = true
clients = 2
of = { kind = "markov", rate = 0.6 }
[start]
kind = "similarity"
[train]
steps = 2
[checkpoint]
rounds = 7
[compare]
algorithm = ["scaffold", "fedavg"]
"""
SCAFFOLD = "cells/01-algorithm-scaffold/seed-0"


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "tide.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "tide.toml").write_text(STUDY)
    return run_study(config.load(folder / "tide.toml"), folder / "runs", jobs=1)[0].path


class StopAfter:
    """Wants to stop once it has been asked so often."""

    def __init__(self, times):
        self.left = times

    def __call__(self):
        self.left -= 1
        return self.left < 0


def start(*arguments, cwd):
    """The command in a process of its own."""
    code = "from fedtide.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_rounds(process, journal, rounds):
    """Wait until a journal has so many lines."""
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= rounds):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def same(one, other):
    """Two folders of the same study hold the same results, wall time aside."""
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(other) for p in other.rglob("*") if p.is_file())
    for file in files:
        if file.suffix == ".safetensors":
            assert (one / file).read_bytes() == (other / file).read_bytes()
        if file.suffix == ".jsonl":
            lines = [[{**line, "seconds": 0} for line in read(at / file)] for at in (one, other)]
            assert lines[0] == lines[1]


def test_a_study_goes_on_with_what_is_unfinished(study, undisturbed, tmp_path):
    plan, out = config.load(study), tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(plan, out, jobs=1, stop=StopAfter(50))
    with pytest.raises(Stopped):  # in the second cell
        run_study(plan, out, jobs=1, resume=True, stop=StopAfter(80))
    ended = out / "tide" / SCAFFOLD / "run.json"
    stamp = ended.stat().st_mtime_ns
    seen = []
    folder, summary = run_study(plan, out, jobs=1, resume=True, watch=seen.append)
    assert ended.stat().st_mtime_ns == stamp  # the first cell had ended
    assert len(seen) == 240
    assert not list(folder.path.rglob("checkpoints"))
    same(folder.path, undisturbed)
    expected = json.loads((undisturbed / "summary.json").read_text())
    for cell, other in zip(summary["cells"], expected["cells"], strict=True):
        cell["metrics"].pop("wall_seconds")
        other["metrics"].pop("wall_seconds")
    assert summary == expected

    report = (folder.path / "report.html").stat().st_mtime_ns
    assert run_study(plan, out, resume=True)[1]["cells"]  # finished: nothing is done
    assert (folder.path / "report.html").stat().st_mtime_ns == report


def test_another_study_is_not_gone_on_with(study, tmp_path):
    out = tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(config.load(study), out, jobs=1, stop=StopAfter(3))
    study.write_text(STUDY.replace("steps = 2", "steps = 3 # more"))
    with pytest.raises(ConfigError, match=r"cells\[0\]\.train\.steps was 2, is 3"):
        run_study(config.load(study), out, jobs=1, resume=True)
    with pytest.raises(ConfigError, match=r"seeds was \[0\], is \[4, 5\]"):
        run_study(config.load(study, ["train.steps=2"], [4, 5]), out, jobs=1, resume=True)
    # what leaves results as they are may change
    study.write_text("# a comment\n" + STUDY.replace("rounds = 7", "seconds = 1"))
    changes = ["engine.workers=1"]
    with pytest.raises(Stopped):
        run_study(config.load(study, changes), out, jobs=1, resume=True, stop=StopAfter(3))


def test_nothing_to_go_on_with_is_a_beginning(study, tmp_path):
    with pytest.raises(Stopped):
        run_study(config.load(study), tmp_path / "runs", jobs=1, resume=True, stop=StopAfter(2))
    assert len(read(tmp_path / "runs/tide" / SCAFFOLD / "journal.jsonl")) == 2


def test_an_unfinished_run_never_displaces_a_finished_one(study, tmp_path):
    out = tmp_path / "runs"
    changes = ["population.rounds=2", "compare.algorithm=['fedavg']"]
    plan = config.load(study, changes)
    run_study(plan, out, jobs=1)
    (out / "tide/mark").touch()
    for _ in range(2):
        with pytest.raises(Stopped):
            run_study(plan, out, jobs=1, stop=StopAfter(2))
    assert (out / "tide.previous/mark").exists()
    assert (out / "tide.unfinished/study.json").exists()
    run_study(plan, out, jobs=1)
    run_study(plan, out, jobs=1)
    assert not (out / "tide.previous/mark").exists()  # a newer finished one
    assert sorted(p.name for p in out.iterdir()) == ["tide", "tide.previous", "tide.unfinished"]


def test_one_folder_belongs_to_one_process(study, tmp_path):
    out = tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(config.load(study), out, jobs=1, stop=StopAfter(2))
    with StudyFolder(out / "tide").locked():
        for resume in (True, False):
            with pytest.raises(OutputError, match="another that runs this study now"):
                run_study(config.load(study), out, jobs=1, resume=resume)


@pytest.mark.parametrize(
    ("number", "jobs"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)], ids=["int-1", "term-2"]
)
def test_a_signal_finishes_the_round_and_says_how_to_go_on(
    study, undisturbed, tmp_path, number, jobs
):
    process = start("run", study, "--jobs", jobs, cwd=tmp_path)
    until_rounds(process, tmp_path / "runs/tide" / SCAFFOLD / "journal.jsonl", 3)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "stopping after this round" in err
    assert f"fedtide run {study} --jobs {jobs} --resume" in err
    kept = list((tmp_path / "runs/tide" / SCAFFOLD / "checkpoints").glob("*.json"))
    assert len(read(tmp_path / "runs/tide" / SCAFFOLD / "journal.jsonl")) == max(
        int(path.stem) for path in kept
    )
    folder, _ = run_study(config.load(study), tmp_path / "runs", jobs=1, resume=True)
    same(folder.path, undisturbed)


def test_a_finished_study_says_so(study, tmp_path):
    plan = config.load(study, ["population.rounds=1", "compare.algorithm=['fedavg']"])
    run_study(plan, tmp_path / "runs", jobs=1)
    arguments = ["run", str(study), "--out", str(tmp_path / "runs"), "--resume"]
    changes = ["--set", "population.rounds=1", "--set", "compare.algorithm=['fedavg']"]
    done = CliRunner().invoke(app, [*arguments, *changes])
    assert "tide is finished: nothing is left to do." in done.stdout
    assert "Report: " in done.stdout
    assert done.exit_code == 0


def test_killed_at_any_moment(study, undisturbed, tmp_path):
    """SIGKILL, which nobody can hear, with one process and with workers; benchmarks/kill.py does more."""
    journal = tmp_path / "runs/tide" / SCAFFOLD / "journal.jsonl"
    for rounds, jobs in ((5, 1), (40, 2)):
        process = start("run", study, "--jobs", jobs, "--resume", cwd=tmp_path)
        until_rounds(process, journal, rounds)
        process.kill()
        process.communicate()  # ends once its workers, too, have let go of the pipes
    folder, _ = run_study(config.load(study), tmp_path / "runs", jobs=1, resume=True)
    same(folder.path, undisturbed)


def test_a_second_signal_stops_at_once(study, tmp_path):
    long = 'steps = 100000\nsampling = "replacement"'  # a round takes very long
    study.write_text(STUDY.replace("steps = 2", long))
    process = start("run", study, "--jobs", 1, cwd=tmp_path)
    until_rounds(process, tmp_path / "runs/tide" / SCAFFOLD / "journal.jsonl", 0)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert Path(tmp_path / "runs/tide/study.json").exists()


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, where the system lets us have one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", path)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def mount(*arguments):
    try:
        done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")


def at_round(number, act):
    """Watches a study, and acts once."""
    return lambda news: act() if news.line["t"] == number and news.cell == 0 else None


def test_a_full_disk_is_an_error_that_costs_nothing(study, undisturbed, disk):
    plan = config.load(study)
    filler = disk / "filler"

    def fill():
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20)) or file.write(bytes(1))

    with pytest.raises(OutputError, match=r"No space left.*go on with --resume") as caught:
        run_study(plan, disk / "runs", jobs=1, watch=at_round(40, fill))
    assert str(disk) in str(caught.value)
    kept = disk / "runs/tide" / SCAFFOLD / "checkpoints"
    assert sorted(path.name for path in kept.glob("*.json")) == ["00000028.json", "00000035.json"]
    filler.unlink()
    folder, _ = run_study(plan, disk / "runs", jobs=1, resume=True)
    same(folder.path, undisturbed)


def test_an_output_that_becomes_read_only(study, undisturbed, tmp_path):
    plan, out = config.load(study), tmp_path / "runs"
    kept = out / "tide" / SCAFFOLD / "checkpoints"

    def lock():
        mount("--bind", kept, kept)
        mount("-o", "remount,ro,bind", kept)

    try:
        with pytest.raises(OutputError, match=r"checkpoints.*Read-only.*go on with --resume"):
            run_study(plan, out, jobs=1, watch=at_round(40, lock))
    finally:
        subprocess.run(["umount", "-l", kept], check=False, capture_output=True)
    folder, _ = run_study(plan, out, jobs=1, resume=True)
    same(folder.path, undisturbed)
