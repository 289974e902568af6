"""`fedtide run --json`: rounds for another program, and nothing else."""

import json
import subprocess
import sys

import pytest

from fedtide import config, run_study
from fedtide.show.jsonl import JsonLines
from tests.cli.command import SMALL, fedtide, fedtide_process


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL + "[compare]\nalgorithm = ['fedavg', {kind = 'fedprox', mu = 1.0}]\n")
    return path


def expected(folder):
    """What a reader must get: who, then the journal's line."""
    settings = [{"algorithm": "fedavg"}, {"algorithm": {"kind": "fedprox", "mu": 1.0}}]
    journals = sorted(folder.glob("cells/*/seed-7/journal.jsonl"))
    return [
        {"study": "small", "settings": setting, "seed": 7, **json.loads(line)}
        for setting, journal in zip(settings, journals, strict=True)
        for line in journal.read_text().splitlines()
    ]


def test_one_object_per_round_equal_to_the_journal(study, tmp_path, capsys):
    plan = config.load(study, seeds=[7])
    run_study(
        plan,
        tmp_path,
        jobs=1,
        watch=JsonLines(plan.name, [cell.settings for cell in plan.cells]).watch,
    )
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(objects) == 4
    assert objects == expected(tmp_path / "small/1")


def test_the_command_prints_nothing_else_also_in_parallel(study, tmp_path):
    done = fedtide_process("run", study, "--json", "--seed", 7, "--jobs", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    objects.sort(key=lambda line: line["settings"] != {"algorithm": "fedavg"})  # each run in order
    assert objects == expected(tmp_path / "runs/small/1")


def test_mistakes_go_to_stderr(study, tmp_path):
    done = fedtide("run", study, "--json", "--set", "train.stepps=3", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fedtide: train.stepps")


def test_a_reader_that_goes_away_does_not_end_the_study(study, tmp_path):
    code = "from fedtide.cli import main; main()"
    arguments = ["run", study, "--json", "--jobs", "1", "--set", "population.rounds=30"]
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert json.loads(process.stdout.readline())["t"] == 0
        process.stdout.close()
        assert process.wait(600) == 0
        assert process.stderr.read() == ""
    assert (tmp_path / "runs/small/1/summary.json").exists()


def test_a_watcher_that_fails_ends_the_study_and_nobody_waits(study, tmp_path):
    def watch(news):
        raise RuntimeError("seen enough")

    plan = config.load(study, ["population.rounds=200"])
    with pytest.raises(RuntimeError, match="seen enough"):
        run_study(plan, tmp_path / "out", jobs=2, watch=watch)
