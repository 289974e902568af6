"""`fedtide deploy status`, and what cannot work."""

import json
import os
import time
from socket import gethostname

import pytest
from typer.testing import CliRunner

from fedtide.cli import app
from fedtide.core.errors import ConfigError
from fedtide.deploy.events import Events
from fedtide.deploy.keys import generate
from fedtide.deploy.nodes import starts
from fedtide.deploy.template import init

STUDY = 'population = { kind = "live", clients = 3, rounds = 2 }\ntrain = { steps = 1 }\n'


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, list(map(str, arguments)))


def test_a_running_deployment(tmp_path):
    said = []
    events = Events(tmp_path / "study" / "deployment.jsonl", said.append)
    events.note("server", pid=os.getpid(), study="study", host=gethostname())
    for client in (0, 1):
        events.note("arrived", client=client, examples=40)
    events.note("asked", kind="train", clients=[0, 1])
    events.note("replied", client=1, seconds=0.25)
    events.note("refused", "client 0 failed: \x1b[31mred\n", client=0, why="red")
    events.note("round", t=0, seed=1, cell=0, cohort=1, population=2, seconds=0.5)
    events.note("asked", kind="train", clients=[0])
    done = invoke("deploy", "status", tmp_path)
    assert done.exit_code == 0, done.output
    assert "study: running since" in done.output
    assert "round 0: 1 of 2 clients, 0.5 s" in done.output
    assert "waiting for the replies of clients [0]" in done.output
    assert "client 0 failed: red" in done.output
    assert said == [r"client 0 failed: \x1b[31mred\n"]
    assert all(len(line) <= 80 or "log" in line for line in done.output.splitlines())


@pytest.mark.parametrize(("pid", "word"), [(1 << 30, "stopped, last event"), (None, "done")])
def test_one_that_has_ended(tmp_path, pid, word):
    events = Events(tmp_path / "study" / "deployment.jsonl")
    events.note("server", pid=pid or os.getpid(), study="study", host=gethostname())
    if pid is None:
        events.note("done", folder="runs/study/1")
    assert word in invoke("deploy", "status", tmp_path).output


def test_a_folder_without_one(tmp_path):
    done = invoke("deploy", "status", tmp_path)
    assert "must have a deployment's log" in str(done.exception)


def test_events_are_json_lines(tmp_path):
    Events(tmp_path / "log" / "deployment.jsonl").note("late", client=3)
    (line,) = (tmp_path / "log" / "deployment.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event.pop("time") == pytest.approx(time.time(), abs=600)
    assert event == {"event": "late", "client": 3}


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtide.deploy.up.subprocess.Popen", None)
    (tmp_path / "study.toml").write_text(STUDY)
    init(tmp_path / "study.toml", tmp_path / "app")
    done = invoke("deploy", "up", tmp_path / "app", "--clients", 4, "--out", tmp_path / "runs")
    assert "deploy --clients must be at most 3" in str(done.exception)
    done = invoke("deploy", "client", "--server", "10.1.2.3:8000")
    assert "127.0.0.1 without --keys" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_the_number_is_that_of_the_key(tmp_path):
    """On a client's machine the folder has one key; where it has several, the number must be said."""
    keys = generate(tmp_path / "keys", 3)
    with pytest.raises(ConfigError, match=r"--number must be given .* Got \[0, 1, 2\]"):
        starts("127.0.0.1:8000", [], keys)
    for number in (0, 2):
        keys.of_client(number).unlink()
    (start,) = starts("10.1.2.3:8000", [], keys, 'file="{number}.csv"', share_errors=True)
    words = 'partition-id=1 file="1.csv" share_errors=true'
    assert start.arguments[:4] == ("--superlink", "10.1.2.3:8000", "--node-config", words)
    assert start.arguments[-1].endswith("client-1.key")
    assert "partition-id=-1 " in starts("127.0.0.1:8000", [])[0].arguments[3]
