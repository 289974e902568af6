"""`fedtide watch` over HTTP, as a real server: what it tells, what it refuses, what it survives."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtide import config, run_study
from fedtide.core.errors import ConfigError
from fedtide.record.folder import StudyFolder
from fedtide.show.watch.server import is_trusted, serve
from fedtide.show.watch.studies import FollowedStudies
from fedtide.show.watch.tail import Rewritten, Tail

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PATIENCE = 600  # seconds; only a test that fails waits so long
STUDY = """
question = "Does it work?"
[population]
kind = "fixed"
clients = 3
rounds = 3
[train]
steps = 1
[compare]
train.lr = [0.1, 0.2]
seed = [1, 2]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that has ended; copied by the tests that change it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(STUDY)
    run_study(config.load(folder / "small.toml"), folder / "runs", jobs=1)
    return folder / "runs"


@pytest.fixture
def runs(finished, tmp_path):
    return Path(shutil.copytree(finished / "small", tmp_path / "runs" / "small")).parent


@pytest.fixture(scope="module")
def server(finished):
    """A server on that folder: its port."""
    (finished.parent / "secret").mkdir()
    (finished.parent / "secret" / "study.json").write_text('{"cells": [], "seeds": []}')
    (finished / "link").symlink_to(finished.parent / "secret")
    code = "from fedtide.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, "watch", str(finished), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "500", "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        yield int(re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_pages_and_data(server, finished):
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
        answer, body = ask(server, path)
        assert answer.status == 200
        assert kind in answer.headers["content-type"]
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")  # no CDN
        assert b"https://" not in body
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    answer, body = ask(server, "/studies")
    (study,) = json.loads(body)["studies"]
    assert (study["name"], study["state"]) == ("small/1", "finished")
    assert (study["rounds"], study["total"], study["ended"], study["runs"]) == (12, 12, 4, 4)
    answer, body = ask(server, "/studies/small/1")
    told = json.loads(body)
    assert told["question"] == "Does it work?"
    assert [cell["label"] for cell in told["cells"]] == ["train.lr = 0.1", "train.lr = 0.2"]
    journals = sorted(finished.glob("small/1/cells/*/*/journal.jsonl"))
    lines = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    keys = ("t", "session", "population", "cohort", "accuracy", "loss")
    assert [event[1:7] for event in told["events"]] == [[x[key] for key in keys] for x in lines]
    assert [event[0] for event in told["events"]] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    later = json.loads(ask(server, f"/studies/small/1?epoch={told['epoch']}&since=10")[1])
    assert later["events"] == told["events"][10:]
    other = json.loads(ask(server, "/studies/small/1?epoch=other&since=10")[1])
    assert other["events"] == told["events"]
    answer, body = ask(server, "/reports/small/1")
    assert body == (finished / "small/1/report.html").read_bytes()
    assert answer.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize(
    "path",
    [
        "/studies/..",
        "/studies/../../etc",
        "/studies/%2e%2e%2fsecret",
        "/studies/..%2Fsecret",
        "/studies/link",  # leads out of the folder
        "/studies/absent",
        "/reports/..",
        "/reports/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/reports/absent",
        "/study.json",
        "/small/1/study.json",
        "/page.py",
        "//etc/passwd",
    ],
)
def test_paths_outside_its_folder_are_refused(server, path):
    answer, body = ask(server, path)
    assert answer.status == 404
    assert body in (b"null", b"Not Found", b"There is no such report.")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8420"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "10.0.0.7"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Host": "localhost", "Origin": "https://evil.example"},
        {"Host": "localhost", "Origin": "null"},
    ],
)
def test_requests_of_other_hosts_are_refused(server, headers):
    answer, body = ask(server, "/studies", **headers)
    assert (answer.status, body) == (403, b"Not for this host.")


def test_its_own_names_and_nothing_but_reading(server):
    for host in (f"localhost:{server}", f"127.0.0.1:{server}", "[::1]"):
        assert ask(server, "/studies", Host=host)[0].status == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(server, "/studies/small/1", method)[0].status == 405


@pytest.mark.parametrize(
    ("name", "host", "may"),
    [
        ("192.168.0.9", "127.0.0.1", False),
        ("192.168.0.9", "0.0.0.0", True),  # an address cannot be pointed elsewhere, a name can
        ("evil.example", "0.0.0.0", False),
        ("lab.example", "lab.example", True),
        ("127.0.0.1", "::1", True),
        ("", "0.0.0.0", False),
    ],
)
def test_who_is_trusted(name, host, may):
    assert is_trusted(name, host) == may


def test_an_address_in_use(server):
    with pytest.raises(ConfigError, match=rf"Got 127\.0\.0\.1, {server} .*Try --port 0"):
        serve(Path("runs"), "127.0.0.1", server, print)


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr("fedtide.core.errors.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"fedtide watch needs .* \"fedtide\[watch\]\""):
        serve(Path("runs"), "127.0.0.1", 0, print)


def line(t):
    return json.dumps(
        {
            "t": t,
            "session": 0,
            "population": 3,
            "cohort": 3,
            "accuracy": 0.5,
            "loss": 1.0,
            "seconds": {"train": 0.1},
        }
    )


def test_every_byte_is_read_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail = Tail(path)
    assert tail.read(1000) == ([], 0)  # not there yet
    first, second = line(0) + "\n", line(1) + "\n"
    path.write_text(first + second[:20])
    lines, size = tail.read(1000)
    assert [x["t"] for x in lines] == [0]
    assert size == len(first) + 20
    assert tail.read(1000) == ([], 0)
    with path.open("a") as file:
        file.write(second[20:])
    lines, size = tail.read(1000)
    assert [x["t"] for x in lines] == [1]
    assert size == len(second) - 20
    path.write_text(first)  # shorter: a resumed run cut it back
    with pytest.raises(Rewritten):
        tail.read(1000)


@pytest.mark.parametrize("bad", [line(7), "not JSON", "[]", '"text"'])
def test_a_line_that_cannot_come_next(tmp_path, bad):
    path = tmp_path / "journal.jsonl"
    path.write_text(line(0) + "\n" + bad + "\n")
    with pytest.raises(Rewritten):
        Tail(path).read(1000)


def killed(runs):
    """The study as if it had been killed in the last round of its third run."""
    study = runs / "small/1"
    (study / "summary.json").unlink()
    (study / "report.html").unlink()
    third, fourth = sorted(study.glob("cells/*/*/journal.jsonl"))[2:]
    (third.parent / "run.json").unlink()
    shutil.rmtree(fourth.parent)
    text = third.read_text()
    third.write_text(text[:-10])
    return third


def test_a_run_that_crashed(runs):
    journal = killed(runs)
    followed = FollowedStudies(runs)
    (study,) = followed.studies()
    assert (study["state"], study["rounds"], study["ended"]) == ("running", 8, 2)
    for path in [*runs.glob("small/1/cells/*/*/journal.jsonl"), runs / "small/1/study.json"]:
        os.utime(path, (time.time() - 90, time.time() - 90))
    if Path("/proc/locks").exists():
        with StudyFolder(runs / "small/1").locked():  # a process is at work: just a long round
            assert FollowedStudies(runs).studies()[0]["state"] == "running"
    (study,) = FollowedStudies(runs).studies()
    assert study["state"] == "quiet"
    assert study["age"] > 89
    before = followed.study("small/1", "", 0)
    text = journal.read_text()
    journal.write_text(text[: text.index("\n") + 1])  # resumed from a checkpoint after round 1
    after = followed.study("small/1", before["epoch"], len(before["events"]))
    while after["more"]:
        after = followed.study("small/1", after["epoch"], 0)
    assert after["epoch"] != before["epoch"]
    assert [event[:2] for event in after["events"][6:]] == [(2, 0)]


def test_a_study_that_vanishes_or_is_run_again(runs):
    followed = FollowedStudies(runs)
    before = followed.study("small/1", "", 0)
    shutil.rmtree(runs / "small")
    assert followed.studies() == []
    assert followed.study("small/1", before["epoch"], 12) is None
    (runs / "small.toml").write_text(STUDY.replace("lr = [0.1, 0.2]", "lr = [0.3]"))
    run_study(config.load(runs / "small.toml"), runs, jobs=1)
    again = followed.study("small/1", before["epoch"], 12)
    assert [cell["label"] for cell in again["cells"]] == ["train.lr = 0.3"]
    assert len(again["events"]) == 6
    shutil.rmtree(runs)
    assert followed.studies() == []


def test_a_folder_that_is_one_study_and_damaged_ones(runs):
    for folder in (runs / "small", runs / "small/1"):
        assert [study["name"] for study in FollowedStudies(folder).studies()] == ["small/1"]
    for name, text in {"a": "{", "b": "[]", "c": '{"cells": [{}], "seeds": [1]}'}.items():
        (runs / name).mkdir()
        (runs / name / "study.json").write_text(text)
    (runs / "d").mkdir()
    (runs / "d" / "study.json").write_text('{"cells": [{"label": "x"}], "seeds": ["../../../up"]}')
    assert [study["name"] for study in FollowedStudies(runs).studies()] == ["small/1"]


def test_every_run_of_a_study_is_followed(runs):
    """Those with a number, and one of an earlier version, whose files lie in the study's own folder."""
    shutil.copytree(runs / "small/1", runs / "small/12")
    shutil.copytree(runs / "small/1", runs / "small", dirs_exist_ok=True)
    shutil.copytree(runs / "small/1", runs / "old.previous")
    names = {"small", "small/1", "small/12"}
    assert {study["name"] for study in FollowedStudies(runs).studies()} == names | {"old.previous"}
    assert {study["name"] for study in FollowedStudies(runs / "small").studies()} == names
    followed = FollowedStudies(runs)
    assert followed.report("small/12") == runs / "small/12/report.html"
    assert followed.report("small") == runs / "small/report.html"
    assert len(followed.study("small", "", 0)["events"]) == 12


def test_much_is_told_in_parts(runs, monkeypatch):
    monkeypatch.setattr("fedtide.show.watch.studies.SENT", 5)
    monkeypatch.setattr("fedtide.show.watch.studies.READ", 1500)
    followed, events, epoch = FollowedStudies(runs), [], ""
    for _ in range(30):
        told = followed.study("small/1", epoch, len(events))
        epoch = told["epoch"]
        assert len(told["events"]) <= 5
        events += told["events"]
        if not told["more"]:
            break
    monkeypatch.undo()
    assert events == FollowedStudies(runs).study("small/1", "", 0)["events"]


EVENTS = """
{"time": 5.0, "event": "server", "pid": 1, "study": "small", "host": "here"}
{"time": 6.0, "event": "arrived", "client": 0, "examples": 30}
{"time": 6.5, "event": "arrived", "client": 2, "examples": 20}
{"time": 7.0, "event": "refused", "why": "client 1: KeyError at data.py:3, in of_client"}
{"time": 7.1, "event": "begun", "folder": "1"}
{"time": 7.2, "event": "asked", "kind": "train", "clients": [0, 2]}
{"time": 7.7, "event": "replied", "client": 0, "seconds": 0.5}
{"time": 8.0, "event": "left", "client": 2, "why": "it is no longer connected"}
{"time": 8.5, "event": "asked", "kind": "train", "clients": [0]}
{"time": 9.0, "event": "repl"""


def test_the_clients_of_a_deployment(runs):
    """A line that is being written is not read yet; a simulation has no such part."""
    assert FollowedStudies(runs).study("small/1", "", 0)["deployment"] is None
    (runs / "small" / "deployment.jsonl").write_text(EVENTS.lstrip())
    told = FollowedStudies(runs).study("small/1", "", 0)["deployment"]
    assert told["waiting"] == [0]
    assert [(c["number"], c["here"], c["replies"]) for c in told["clients"]] == [
        (0, True, 1),
        (2, False, 0),
    ]
    assert told["news"][0] == "client 2 has left: it is no longer connected"
    assert (
        "a client cannot take part: client 1: KeyError at data.py:3, in of_client" in told["news"]
    )
