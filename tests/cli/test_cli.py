"""The command as a person uses it: output, exit codes, nothing left behind."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedtide.data.datasets import DATASETS
from fedtide.run import reuse
from fedtide.run.kinds import ROOMS
from tests.cli.command import SMALL, fedtide, fedtide_process


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_run_prints_a_table_and_names_the_report(study, tmp_path):
    done = fedtide_process("run", study, "--seed", 1, "--seed", 2, "--jobs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy %" in done.stdout
    assert "±" in done.stdout
    assert "Report: runs/small/1/report.html" in done.stdout
    summary = json.loads((tmp_path / "runs/small/1/summary.json").read_text())
    assert len(summary["cells"][0]["metrics"]["accuracy"]["values"]) == 2
    report = tmp_path / "runs/small/1/report.html"
    report.unlink()
    assert fedtide("report", "runs/small", cwd=tmp_path).returncode == 0
    assert report.exists()


def test_figures_and_tables_of_a_study(study, tmp_path):
    assert fedtide("run", study, "--jobs", 1, cwd=tmp_path).returncode == 0
    done = fedtide("figures", "runs/small", "--format", "svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "runs/small/1/figures/accuracy.svg" in done.stdout.splitlines()
    done = fedtide("table", "runs/small", "--format", "latex", cwd=tmp_path)
    assert done.stdout.startswith("\\begin{table}"), done.stderr
    rounds = fedtide("table", "runs/small", "--rounds", cwd=tmp_path).stdout.splitlines()
    assert len(rounds) == 3
    assert rounds[0].startswith("seed,t,session")


def test_every_run_is_kept_and_the_newest_is_meant(study, tmp_path):
    """The terminal says what is kept where; commands say which results they took."""
    for lr, others in ((0.1, ""), (0.2, "; other runs of this study: runs/small/1")):
        done = fedtide("run", study, "--set", f"train.lr={lr}", "--jobs", 1, cwd=tmp_path)
        assert done.stdout.endswith(f"Kept in runs/small/{round(10 * lr)}{others}\n"), done.stderr
    done = fedtide("table", "runs/small", "--format", "csv", cwd=tmp_path)
    assert done.stderr == "fedtide: the newest results in runs/small are runs/small/2\n"
    newest = fedtide("table", "runs/small/2", "--format", "csv", cwd=tmp_path)
    assert (newest.stdout, newest.stderr) == (done.stdout, "")
    # Results of an earlier version, in the study's own folder: the newest until there are others.
    old = tmp_path / "runs/old"
    shutil.copytree(tmp_path / "runs/small/1", old)
    done = fedtide("report", "runs/old", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("Report: runs/old/report.html\n", "")
    shutil.copytree(tmp_path / "runs/small/2", old / "1")
    for folder, report in (("runs/old", "runs/old/1"), ("runs/old/study.json", "runs/old")):
        done = fedtide("report", folder, cwd=tmp_path)
        assert done.stdout == f"Report: {report}/report.html\n", done.stderr


def test_check_finds_what_run_would_refuse(study, tmp_path):
    wrong = ["--set", "train.model=lenet5"]  # for pictures of another shape
    run, check = (fedtide(command, study, *wrong, cwd=tmp_path) for command in ("run", "check"))
    assert run.returncode == check.returncode == 2
    assert run.stderr == check.stderr


def test_cost_without_a_network_says_so(study, tmp_path):
    done = fedtide("cost", study, cwd=tmp_path)
    assert done.returncode == 0
    assert "there is nothing to price" in done.stdout
    assert "fedtide list networks wireless" in done.stdout


def test_list_explains_one_kind(study, tmp_path):
    done = fedtide("list", "algorithms", "fedprox", cwd=tmp_path)
    assert "mu: number; default 0.01" in done.stdout
    wrong = fedtide("list", "algorithms", "fedproxx", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "Did you mean 'fedprox'?" in wrong.stderr


def test_a_log_has_a_line_at_once_and_one_per_run(study, tmp_path):
    done = fedtide("run", study, "--seed", 1, "--seed", 2, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == f"Reading {study} ..."
    assert lines[1] == "small: 2 runs, 4 rounds in all"
    assert [line[:4] for line in lines[2:4]] == ["1/2:", "2/2:"]
    assert "1/2" not in fedtide("run", study, "--quiet", cwd=tmp_path).stdout


def test_runs_are_listed_with_what_differs(study, tmp_path):
    for more in (["--name", "slow"], ["--set", "train.lr=0.5"], ["--seed", "7"]):
        assert fedtide("run", study, *more, cwd=tmp_path).returncode == 0
    done = fedtide("runs", "runs/small", cwd=tmp_path)
    assert done.stdout.startswith("small: 3 runs, the newest first")
    rows = [line for line in done.stdout.splitlines() if "finished" in line]
    assert [row.split()[0] for row in rows] == ["3", "2", "1-slow"]
    assert "train.lr = 0.5" in done.stdout
    assert "seeds = 7" in done.stdout
    assert "algorithm" not in done.stdout  # the same in all of them
    fedtide("run", study, "--out", "runs/other", cwd=tmp_path)
    named = fedtide("table", "runs/small/slow", "--format", "csv", cwd=tmp_path)
    assert named.stderr == "fedtide: the newest results in runs/small/slow are runs/small/1-slow\n"
    empty = fedtide("runs", "nowhere", cwd=tmp_path)
    assert empty.returncode == 2
    assert "Got no study there" in empty.stderr


def test_changed_settings_are_kept_listed_compared_and_only_new_runs_computed(
    study, tmp_path, monkeypatch
):
    monkeypatch.setattr(reuse, "is_dirty", lambda: False)
    seeds = ["--seed", 1, "--seed", 2]
    journals = {}
    for lr in (0.1, 0.2, 0.3):
        done = fedtide("run", study, "--set", f"train.lr={lr}", *seeds, cwd=tmp_path)
        assert "taken from" not in done.stdout, done.stderr
        new = set((tmp_path / "runs").rglob("journal.jsonl")) - set(journals)
        assert len(new) == 2
        journals |= {path: path.read_bytes() for path in new}
    listed = fedtide("runs", "runs/small", cwd=tmp_path).stdout
    assert all(f"train.lr = {lr}" in listed for lr in (0.1, 0.2, 0.3))
    compared = fedtide("compare", *(f"runs/small/{n}" for n in (1, 2, 3)), cwd=tmp_path).stdout
    assert re.search(r"train\.lr +0\.1 +0\.2 +0\.3", compared)
    assert compared.count("all: ") == 3  # a sentence for each pair
    more = ["--seed", 3, "--seed", 4, "--resume", "--set", "train.lr=0.3"]
    done = fedtide("run", study, *seeds, *more, cwd=tmp_path)
    assert "2 runs were taken from runs/small/3: same" in done.stdout, done.stderr
    assert len(set((tmp_path / "runs/small/4").rglob("journal.jsonl"))) == 4  # two are new
    grid = ["--set", "compare.train.lr=[0.1, 0.2, 0.4]", *seeds]
    done = fedtide("run", study, *grid, cwd=tmp_path)
    taken = re.findall(r"(\d) runs were taken from", done.stdout)
    assert sum(map(int, taken)) == 4, done.stdout  # those of the third cell are new
    assert all(path.read_bytes() == content for path, content in journals.items())


def test_check_says_what_would_run(study, tmp_path):
    done = fedtide("check", study, "--set", "compare.algorithm=['fedavg','moon']", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 settings x 1 seed, 4 rounds in all" in done.stdout
    assert "  MOON\n" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.toml"]


@pytest.mark.parametrize("room", ["algorithms", "datasets", "models", "partitions", "starts"])
def test_list_shows_every_kind(room, tmp_path):
    done = fedtide("list", room, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(kind in done.stdout for kind in (DATASETS if room == "datasets" else ROOMS[room]))


def test_list_prints_brackets_as_they_are(tmp_path):
    assert "fedtide[fast]" in fedtide("list", "engines", cwd=tmp_path).stdout


def test_data_describes_a_dataset(tmp_path):
    done = fedtide("data", "digits", cwd=tmp_path)
    assert "1,442 training and 355 test examples, 10 labels" in done.stdout
    assert "digits" in fedtide("data", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "small.toml", "--set", "train.stepps=3"],
            "train.stepps: Train has no such setting. Did you mean",
        ),
        (["run", "small.toml", "--set", "train.lr=nan"], "train.lr must be a finite number"),
        (
            ["run", "small.toml", "--set", "population.clients=0"],
            "population.clients must be at least 1",
        ),
        (["run", "small.toml", "--set", "data.name=mnist"], "mnist"),
        (["run", "small.toml", "--set", "data.name=minst"], "Did you mean 'mnist'?"),
        (
            ["run", "small.toml", "--out", "small.toml"],
            "--out must be a folder that can be written",
        ),
        (
            ["run", "small.toml", "--set", "train.model={kind='fashion-cnn',outputs=3}"],
            "train.model",
        ),
        (["run", "absent.toml"], "must be a study file"),
        (["report", "."], "must be the folder of a study"),
        (["list", "algoritms"], "Did you mean 'algorithms'?"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(study, tmp_path, arguments, message):
    before = sorted(p.name for p in tmp_path.iterdir())
    done = fedtide(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fedtide: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_bad_input_ends_a_process_of_its_own_in_the_same_way(study, tmp_path):
    arguments = "run", study, "--set", "train.stepps=3"
    here, process = (call(*arguments, cwd=tmp_path) for call in (fedtide, fedtide_process))
    assert process.returncode == here.returncode == 2
    assert process.stderr == here.stderr
    assert process.stdout == here.stdout == f"Reading {study} ...\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.toml"]


def test_a_damaged_file_is_named(study, tmp_path):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / name).write_bytes(b"\x00\x00\x08\x03broken")
    done = fedtide(
        "run", study, "--set", "data.name=mnist", cwd=tmp_path, FEDTIDE_DATA=str(tmp_path / "data")
    )
    assert done.returncode == 2
    assert "ubyte" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_training_that_breaks_down_is_exit_code_1(study, tmp_path):
    done = fedtide_process("run", study, "--set", "train.lr=1e38", "--jobs", 1, cwd=tmp_path)
    assert done.returncode == 1
    assert "Try a smaller train.lr" in done.stderr


def test_help_does_not_wait_for_torch(tmp_path):
    code = "import sys, fedtide.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_version_and_help(tmp_path):
    assert fedtide_process("--version", cwd=tmp_path).stdout.strip()
    assert "run" in fedtide_process("--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("example", sorted(Path("examples").glob("*.py")), ids=str)
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    """As scripts, but in this process, where pytest makes errors of warnings and torch is imported."""
    path = Path(example).resolve()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    runpy.run_path(str(path), run_name="__main__")
    assert "%" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) < (40 if path.stem == "notebook" else 60)
