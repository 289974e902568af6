"""The real thing: flower-superlink and flower-supernode as processes, with TLS and keys, on this machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from fedtide import config
from fedtide.deploy import up
from fedtide.deploy.keys import generate
from fedtide.deploy.template import init
from fedtide.deploy.up import Deployment
from fedtide.record.deployment import newest
from fedtide.run.execute import run_study

PATIENCE = 600  # seconds; only a test that fails waits so long


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(up, "START", PATIENCE)


@pytest.fixture(scope="module")
def pace():
    """Seconds that a client's process takes to start, now, on this machine."""
    started = time.monotonic()
    code = "import fedtide.config, flwr.clientapp"
    subprocess.run([sys.executable, "-c", code], check=True)
    return max(1.0, time.monotonic() - started)


def app(folder, text):
    """The app of a study."""
    study = folder / "study.toml"
    study.write_text(text)
    init(study, folder / "app")
    return folder / "app"


def journal(out):
    (path,) = out.glob("study/1/cells/*/*/journal.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def left_over(home):
    """Processes that still belong to this deployment: they have its folder in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def children(pid):
    """The processes that this one started, with the number of their threads."""
    own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): len(list(Path(f"/proc/{child}/task").iterdir())) for child in own}


EQUAL = """
data = { name = "digits", partition = { kind = "dirichlet", alpha = 0.5 } }
population = { kind = "fixed", clients = 3, rounds = 3 }
train = { model = "linear", steps = 3, lr = 0.1 }
engine = { kind = "loop", flower = { deadline = 600, wait = 600 } }
[compare]
algorithm = ["fedavg", "scaffold", "moon"]
seed = [5]
"""


def equal_to_the_loop(tmp_path, out):
    """Are the models of a deployment those of the loop engine, byte by byte?"""
    study = config.load(tmp_path / "study.toml")
    simulated = run_study(study, tmp_path / "simulated", jobs=1).folder.path
    here, there = (
        sorted(folder.glob("cells/*/*/model.safetensors")) for folder in (out, simulated)
    )
    assert len(here) == len(there) == 3
    return [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


def test_three_clients_equal_the_loop_bit_for_bit(tmp_path):
    """Warm clients; the workers, which have app, data and models loaded, are killed between two rounds."""
    home = tmp_path / "flower"
    with Deployment(app(tmp_path, EQUAL), home) as place:
        place.start_server()
        family = place.start_client(0, 1, 2)
        said = []
        for line in place.run(tmp_path / "real", 3):
            said.append(line)
            if "round 1:" in line:
                workers = [pid for pid, threads in children(family.pid).items() if threads == 1]
                assert len(workers) == 3
                for pid in workers:
                    os.kill(pid, signal.SIGKILL)
    assert "clients [0, 1, 2] are here" in said
    assert not [line for line in said if "failed" in line]
    assert not left_over(home)
    assert equal_to_the_loop(tmp_path, tmp_path / "real" / "study" / "1")


@pytest.mark.skipif(
    not os.environ.get("FEDTIDE_SLOW"), reason="takes minutes (FEDTIDE_SLOW=1 runs it)"
)
def test_three_cold_clients_equal_the_loop_bit_for_bit(tmp_path):
    """As Flower starts them: a process for every message."""
    with Deployment(app(tmp_path, EQUAL), tmp_path / "flower") as place:
        place.start_server()
        place.start_client(0, 1, 2, cold=True)
        list(place.run(tmp_path / "real", 3))
    assert equal_to_the_loop(tmp_path, tmp_path / "real" / "study" / "1")


def test_who_is_refused(tmp_path):
    """A client with a registered key is let in; one with an unknown key is not, nor one without TLS."""
    keys = generate(tmp_path / "keys", 1)
    strange = generate(tmp_path / "strange", 2)
    shutil.copy(keys.authority, strange.authority)
    home = tmp_path / "flower"
    with Deployment(tmp_path, home, keys) as place:
        place.start_server()
        place.register(0)
        place.start_client(0)
        refused = place.start_client(1, keys=strange)
        plain = ["flower-supernode", "--superlink", place.address, "--insecure"]
        place._start("client-2", [*plain, "--port", str(up.free_port())])
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not (
            "SuperNode ID" in place.log("client-0")
            and refused.poll() is not None
            and "Connection attempt failed" in place.log("client-2")
        ):
            time.sleep(0.1)
        assert "SuperNode ID" in place.log("client-0")
        assert refused.poll()
        assert "Failed to activate SuperNode" in place.log("client-1")
        assert "Connection attempt failed" in place.log("client-2")
        for name in ("client-1", "client-2"):
            assert "SuperNode ID" not in place.log(name)
        assert asks_for_work(place.logs / "client-0.log") == 401
    assert not left_over(home)


def asks_for_work(log):
    """The answer to a process on the same machine that asks a SuperNode for work without its secret."""
    address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())[0]
    form = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    request = Request(f"{address}/v1/runtime/acquire-task", b"", form)
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    refused.value.close()
    return refused.value.code


def test_ctrl_c_stops_everything(tmp_path):
    """`fedtide deploy up` is interrupted while its clients start: nothing stays behind."""
    folder = app(tmp_path, 'population = { kind = "live", clients = 1 }\ntrain = { steps = 1 }\n')
    command = [sys.executable, "-c", "from fedtide.cli import main; main()"]
    command += ["deploy", "up", str(folder), "--clients", "1"]
    with subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Jobs in the background, as these tests may be, are deaf to Ctrl-C; this child is not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert any("Ctrl-C stops everything" in line for line in process.stdout)
        assert left_over(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE)
    assert not left_over(tmp_path)


def test_clients_that_come_and_go_with_tls_and_keys(tmp_path, pace):
    """Client 1 is killed in the middle of a round, client 2 comes late. The run ends, both changes are
    sessions, DIMC's start was used, no process stays.

    Client 2 is started while round 1 waits for client 1 until the deadline, which leaves time for it.
    """
    text = f"""
data = {{ name = "digits", partition = {{ kind = "dirichlet", alpha = 0.5 }} }}
population = {{ kind = "live", clients = 3, rounds = 16 }}
algorithm = "fedprox"
train = {{ model = "linear", steps = 3, lr = 0.1 }}
start = {{ kind = "similarity", P = 1, trigger = "always" }}
engine.flower = {{ deadline = {10 + 10 * pace}, wait = {PATIENCE} }}
"""
    keys = generate(tmp_path / "keys", 3)
    home = tmp_path / "flower"
    with Deployment(app(tmp_path, text), home, keys) as place:
        place.start_server()
        for number in range(3):
            place.register(number)
        first, second = place.start_client(0), place.start_client(1)
        for line in place.run(tmp_path / "out", 2):
            if ", round 0:" in line:  # round 1 has just begun
                killer = Thread(target=_kill_in_a_moment, args=(home, second))
                killer.start()
                place.start_client(2)
            if ", round 1:" in line:  # it ended without client 1
                killer.join()
        assert first.poll() is None
    assert not left_over(home)
    lines = journal(tmp_path / "out")
    assert [line["t"] for line in lines] == list(range(16))
    arrived = {line["t"]: line["arrived"]["ids"] for line in lines if "arrived" in line}
    left = [line["left"]["ids"] for line in lines if "left" in line]
    assert arrived[0] == "0-1"
    assert "2" in arrived.values()
    assert "1" in left
    assert sum(line.get("lost", 0) for line in lines) >= 1
    assert any("start_weights" in line for line in lines)
    assert {client for line in lines for client in line["clients"]} == {0, 1, 2}
    _, state = newest(tmp_path / "out")
    assert state.ended == "done"
    assert {number: client.here for number, client in state.clients.items()} == {
        0: True,
        1: False,
        2: True,
    }


def _kill_in_a_moment(home, client):
    """SIGKILL for a SuperNode and its family, once it has been given the work of another round."""

    def letters():
        return (home / "client-1.log").read_text(errors="replace").count("Receiving: train")

    before, until = letters(), time.monotonic() + PATIENCE
    while letters() <= before and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(client.pid, signal.SIGKILL)
