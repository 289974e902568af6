"""Clients that stay loaded, without Flower's processes."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from fedtide.deploy import resident, warm
from fedtide.deploy.resident import ClientProcesses, Worker, fork
from fedtide.deploy.warm import Claim, Polling, missing

# The process of the tests may have threads; its forked children here use none of what these may hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
TASK = Claim("token", ("publisher/app", "1.0", "hash"), {"partition-id": 0})


def test_the_installed_flower_has_what_is_used():
    """A canary: if a new version fails here, clients start cold until warm.py is adapted."""
    assert missing() == []


def test_parts_that_are_gone_are_named(monkeypatch):
    monkeypatch.setattr(warm, "PARTS", {"flwr.app": ("Message", "gone"), "flwr.nowhere": ("a",)})
    assert missing() == ["flwr.app.gone", "flwr.nowhere"]


def test_waits_grow_while_nothing_comes(monkeypatch):
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr(warm.time, "monotonic", lambda: now.time)
    monkeypatch.setattr(
        warm.time, "sleep", lambda seconds: setattr(now, "time", now.time + seconds)
    )
    pace, looks = Polling(), 0
    while now.time < 60:
        pace.sleep(3)
        looks += 1
    assert looks < 80
    assert pace.seconds() == warm.LONGEST
    pace.busy()
    assert pace.seconds() == warm.SHORTEST
    now.time += 0.2  # a look for messages takes long: the machine is busy
    assert pace.seconds() == pytest.approx(1.6)


@pytest.fixture
def client(monkeypatch, tmp_path):
    """The channel of a client and its worker, without a SuperNode."""
    monkeypatch.setattr(ClientProcesses, "_run_node", lambda self: time.sleep(600))
    made = []

    def make(answer, prepare=lambda app: None):
        monkeypatch.setattr(resident, "loaded", prepare)
        monkeypatch.setattr(resident, "answer", answer)
        made.append(ClientProcesses(SimpleNamespace(number=0, log=tmp_path / "log"), tmp_path))
        return made[-1]

    yield make
    for each in made:
        for pid in (each.node, each.worker):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        each.here.close()
        each.there.close()


def test_each_message_has_a_process_of_its_own(client, tmp_path):
    def answer(task, *_):
        with (tmp_path / "pids").open("a") as file:
            file.write(f"{os.getpid()} {os.getppid()}\n")

    one = client(answer)
    assert [one._work(TASK) for _ in range(3)] == [None] * 3
    rows = [line.split() for line in (tmp_path / "pids").read_text().splitlines()]
    assert len({own for own, _ in rows}) == 3
    assert {parent for _, parent in rows} == {str(one.worker)}


def test_a_crash_costs_one_message(client, tmp_path):
    def answer(task, *_):
        if not (tmp_path / "crashed").exists():
            (tmp_path / "crashed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    one = client(answer)
    assert one._work(TASK) == "its process ended by signal SIGKILL"
    assert one._work(TASK) is None


def test_a_worker_that_ends_before_it_begins_is_replaced(client, tmp_path):
    """Its successor, which the supervisor starts, takes the message."""

    def prepare(app):
        if not (tmp_path / "crashed").exists():
            (tmp_path / "crashed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    one = client(lambda *_: None, prepare)
    said = []
    thread = threading.Thread(target=lambda: said.append(one._work(TASK)))
    thread.start()
    os.waitpid(one.worker, 0)
    one.replace_worker()
    thread.join()
    assert said == [None]


def test_a_worker_with_threads_answers_itself():
    """A fork of a process with threads may hang."""
    worker = Worker(None, "")
    assert worker._may_fork() == (len(os.listdir("/proc/self/task")) == 1)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert not worker._may_fork()
    stop.set()
    thread.join()


def test_a_worker_on_an_accelerator_answers_itself():
    worker = Worker(None, "")
    worker.prepared = SimpleNamespace(is_on_cpu=lambda: False)
    assert not worker._may_fork()


def test_processes_end_with_the_one_that_started_them(tmp_path):
    """A supervisor that is killed leaves nothing behind."""

    def family():
        child = fork(lambda: time.sleep(600), signal.SIGKILL)
        (tmp_path / "child").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(family), 0)
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 30
    while time.monotonic() < until and _is_running(child):
        time.sleep(0.01)
    assert not _is_running(child)


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
