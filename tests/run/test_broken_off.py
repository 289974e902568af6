"""Studies that break off: stopped, killed, resumed, left half-way, on a disk that fills up."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedtide import config
from fedtide.cli import app
from fedtide.core.errors import ConfigError, OutputError
from fedtide.record.checkpoint import Stopped
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import read
from fedtide.run.execute import run_study

STUDY = """
[population]
kind = "alternating"
clients = 4
sessions = 4
rounds = 12
[participation]
kind = "fast"
adaptive = true
clients = 2
of = { kind = "slow.py:Slow", rate = 0.6 }
[start]
kind = "similarity"
[train]
steps = 2
[checkpoint]
rounds = 7
[compare]
algorithm = ["scaffold", "fedavg"]
"""
SLOW = """
import time
from dataclasses import dataclass
from pathlib import Path
from fedtide.population.presence import Markov

@dataclass(frozen=True, kw_only=True)
class Slow(Markov):
    'While there is a file of this name in the working folder, every round takes a while.'

    def draw(self, *about):
        if Path("slowly").exists():
            time.sleep(0.2)
        return super().draw(*about)
"""
PATIENCE = 600  # seconds; only a test that fails waits so long
SCAFFOLD = "cells/01-algorithm-scaffold/seed-0"


def written(folder):
    """The study in a folder of its own: the kinds of a folder are known by its name."""
    folder = folder / f"study-{folder.name}"
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW)
    (folder / "tide.toml").write_text(STUDY)
    return folder / "tide.toml"


@pytest.fixture
def study(tmp_path):
    return written(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return run_study(config.load(written(folder)), folder / "runs", jobs=1).folder.path


class StopAfter:
    """Wants to stop once it has been asked so often."""

    def __init__(self, times):
        self.left = times

    def __call__(self):
        self.left -= 1
        return self.left < 0


def start_slow(*arguments, cwd):
    """The command in a process of its own, slow enough to be stopped before its end."""
    (cwd / "slowly").touch()
    return start(*arguments, cwd=cwd)


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
    deadline = time.monotonic() + PATIENCE
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= rounds):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def until_said(process, words):
    """Read what a process says of mistakes and signals until it says this."""
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


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
        run_study(plan, out, jobs=1, stop=StopAfter(20))
    with pytest.raises(Stopped):  # in the second cell
        run_study(plan, out, jobs=1, resume=True, stop=StopAfter(40))
    ended = out / "tide/1" / SCAFFOLD / "run.json"
    stamp = ended.stat().st_mtime_ns
    seen = []
    folder, summary = run_study(plan, out, jobs=1, resume=True, watch=seen.append)
    assert ended.stat().st_mtime_ns == stamp  # the first cell had ended
    assert len(seen) == 96
    for kept in folder.path.rglob("checkpoints"):  # one, to which rounds can be added
        assert sorted(path.name for path in kept.iterdir()) == [
            "00000047.json",
            "00000047.safetensors",
        ]
    same(folder.path, undisturbed)
    expected = json.loads((undisturbed / "summary.json").read_text())
    for cell, other in zip(summary["cells"], expected["cells"], strict=True):
        cell["metrics"].pop("wall_seconds")
        other["metrics"].pop("wall_seconds")
        cell["made_by"].pop("settings")  # they name the algorithm's own file, which lies elsewhere
        other["made_by"].pop("settings")
    assert summary == expected

    report = (folder.path / "report.html").stat().st_mtime_ns
    assert run_study(plan, out, resume=True).summary["cells"]  # finished: nothing is done
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
    assert len(read(tmp_path / "runs/tide/1" / SCAFFOLD / "journal.jsonl")) == 2


def test_the_newest_run_with_the_same_settings_goes_on(study, tmp_path):
    """Between them lies a run with other settings, which stays as it is."""
    out, quick = tmp_path / "runs", ["population.rounds=2", "compare.algorithm=['fedavg']"]
    plan, other = config.load(study, quick), config.load(study, [*quick, "train.steps=3"])
    for one in (plan, other):
        with pytest.raises(Stopped) as caught:
            run_study(one, out, jobs=1, stop=StopAfter(2))
    assert caught.value.folder == out / "tide/2"
    folder, _ = run_study(plan, out, jobs=1, resume=True)
    assert folder.path == out / "tide/1"
    assert folder.is_finished
    assert not StudyFolder(out / "tide/2").is_finished
    assert run_study(plan, out, jobs=1).folder.path == out / "tide/3"
    assert run_study(plan, out, jobs=1, resume=True).folder.path == out / "tide/3"  # finished
    assert run_study(other, out, jobs=1, resume=True).folder.path == out / "tide/2"


def test_one_folder_belongs_to_one_process(study, tmp_path):
    plan, out = config.load(study), tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(plan, out, jobs=1, stop=StopAfter(2))
    with StudyFolder(out / "tide/1").locked():
        with pytest.raises(OutputError, match="another that runs this study now"):
            run_study(plan, out, jobs=1, resume=True)
        with pytest.raises(Stopped) as caught:  # anew is possible at any time
            run_study(plan, out, jobs=1, stop=StopAfter(2))
    assert caught.value.folder == out / "tide/2"


def test_processes_that_begin_at_once_get_folders_of_their_own(study, tmp_path):
    changes = ["--set", "population.rounds=1", "--set", "compare.algorithm=['fedavg']"]
    both = [start("run", study, "--jobs", 1, *changes, cwd=tmp_path) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
    assert sorted(path.name for path in (tmp_path / "runs/tide").iterdir()) == ["1", "2"]
    same(tmp_path / "runs/tide/1", tmp_path / "runs/tide/2")


def test_many_begin_at_once_and_none_gets_the_folder_of_another(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: StudyFolder.begin(tmp_path / "tide").path.name, range(64)))
    assert sorted(map(int, found)) == list(range(1, 65))


def test_results_of_an_earlier_version_go_on_where_they_lie(study, undisturbed, tmp_path):
    """There the files lay in the study's own folder, and runs had no identity."""
    plan, out = config.load(study), tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(plan, out, jobs=1, stop=StopAfter(20))
    (out / "tide/1").rename(out / "old")
    (out / "tide").rmdir()
    (out / "old").rename(out / "tide")
    for path in out.rglob("identity.json"):
        path.unlink()
    folder, _ = run_study(plan, out, jobs=1, resume=True)
    assert folder.path == out / "tide"
    same(folder.path, undisturbed)
    before = sorted(out.rglob("*"))
    run_study(config.load(study, ["population.rounds=1"]), out, jobs=1)
    assert set(before) < set(out.rglob("*"))
    same(out / "tide/1", out / "tide/1")


def test_swapped_folders_are_refused(study, tmp_path):
    """Of two seeds in one cell, and of two cells; a report refuses them, too."""
    plan, out = config.load(study, seeds=[1, 2]), tmp_path / "runs"
    with pytest.raises(Stopped):
        run_study(plan, out, jobs=1, stop=StopAfter(60))  # seed 1 has ended, seed 2 has not
    seeds = [out / "tide/1/cells/01-algorithm-scaffold" / f"seed-{seed}" for seed in (1, 2)]
    swap(*seeds)
    message = (
        r"must hold the run of cell 1 \(algorithm = scaffold\), seed 1\. Got .*scaffold\), seed 2\."
    )
    with pytest.raises(OutputError, match=message):
        run_study(plan, out, jobs=1, resume=True)
    with pytest.raises(OutputError, match=message):
        StudyFolder(out / "tide/1").journals()
    swap(*seeds)
    run_study(plan, out, jobs=1, resume=True)
    swap(*(out / "tide/1/cells").iterdir())
    with pytest.raises(
        OutputError, match=r"cell 1 \(algorithm = scaffold\).* Got the run of cell 2"
    ):
        StudyFolder(out / "tide/1").journals()


def swap(one, other):
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


@pytest.mark.parametrize(
    ("number", "jobs"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)], ids=["int-1", "term-2"]
)
def test_a_signal_finishes_the_round_and_says_how_to_go_on(
    study, undisturbed, tmp_path, number, jobs
):
    process = start_slow("run", study, "--jobs", jobs, cwd=tmp_path)
    until_rounds(process, tmp_path / "runs/tide/1" / SCAFFOLD / "journal.jsonl", 3)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    assert "stopping after this round" in err
    assert f"fedtide run {study} --jobs {jobs} --resume" in err
    kept = list((tmp_path / "runs/tide/1" / SCAFFOLD / "checkpoints").glob("*.json"))
    assert len(read(tmp_path / "runs/tide/1" / SCAFFOLD / "journal.jsonl")) == max(
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
    other = CliRunner().invoke(app, [*arguments, *changes, "--set", "train.lr=0.3"])
    assert other.stdout.splitlines()[1:] == []  # nothing about being finished
    assert re.search(r"train\.lr was 0\.1, is 0\.3\. Change them back", str(other.exception))


def test_another_kind_of_processor(study, undisturbed, tmp_path, monkeypatch):
    """torch without vector instructions stands for another machine: refused, or the same within rounding."""
    with pytest.raises(Stopped):
        run_study(config.load(study), tmp_path / "runs", jobs=1, stop=StopAfter(20))
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor has no vector instructions that torch uses")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    again = "run", study, "--jobs", 1, "--resume"
    process = start(*again, cwd=tmp_path)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, err
    assert err.count("\n") == 1
    assert "or add --set checkpoint.processor=any" in err
    process = start(*again, "--set", "checkpoint.processor=any", cwd=tmp_path)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    model, expected = (
        load_file(folder / SCAFFOLD / "model.safetensors")
        for folder in (tmp_path / "runs/tide/1", undisturbed)
    )
    assert all(torch.allclose(model[name], expected[name], atol=1e-4) for name in expected)


def test_killed_between_the_last_file_and_the_end(study, tmp_path):
    """The run has ended, its checkpoints are still there: all but one go, once the study goes on."""
    plan = config.load(study, ["population.rounds=2", "compare.algorithm=['fedavg']"])
    folder, _ = run_study(plan, tmp_path, jobs=1)
    (folder.path / "summary.json").unlink()
    left = folder.run(0, "algorithm = fedavg", 0) / "checkpoints"
    kept = sorted(left.iterdir())
    (left / "00000008.safetensors").touch()
    run_study(plan, tmp_path, jobs=1, resume=True)
    assert folder.is_finished
    assert sorted(left.iterdir()) == kept


def test_killed_at_any_moment(study, undisturbed, tmp_path):
    """SIGKILL, which nobody can hear, with one process and with workers; benchmarks/kill.py does more."""
    journal = tmp_path / "runs/tide/1" / SCAFFOLD / "journal.jsonl"
    for rounds, jobs in ((5, 1), (12, 2)):
        process = start_slow("run", study, "--jobs", jobs, "--resume", cwd=tmp_path)
        until_rounds(process, journal, rounds)
        process.kill()
        process.communicate()  # ends once its workers, too, have let go of the pipes
    folder, _ = run_study(config.load(study), tmp_path / "runs", jobs=1, resume=True)
    same(folder.path, undisturbed)


def test_a_second_signal_stops_at_once(study, tmp_path):
    long = 'steps = 100000\nsampling = "replacement"'  # a round takes very long
    study.write_text(STUDY.replace("steps = 2", long))
    process = start_slow("run", study, "--jobs", 1, cwd=tmp_path)
    until_rounds(process, tmp_path / "runs/tide/1" / SCAFFOLD / "journal.jsonl", 0)
    process.send_signal(signal.SIGINT)
    until_said(process, "once more stops at once")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert Path(tmp_path / "runs/tide/1/study.json").exists()


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
    kept = disk / "runs/tide/1" / SCAFFOLD / "checkpoints"
    assert sorted(path.name for path in kept.glob("*.json")) == ["00000028.json", "00000035.json"]
    filler.unlink()
    folder, _ = run_study(plan, disk / "runs", jobs=1, resume=True)
    same(folder.path, undisturbed)


def test_an_output_that_becomes_read_only(study, undisturbed, tmp_path):
    plan, out = config.load(study), tmp_path / "runs"
    kept = out / "tide/1" / SCAFFOLD / "checkpoints"

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
