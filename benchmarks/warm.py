"""What does a round with real clients cost, and how long does it wait for clients that are killed?

    python benchmarks/warm.py rounds [clients] [rounds] [cold]
    python benchmarks/warm.py departures

A linear model, all processes on this machine. `rounds` prints the seconds of each round, the CPU seconds of
the clients' processes per message (with all their looks for messages), the memory of all processes (each
shared page counted once) and the cores that everything uses when idle. `departures` kills one client and
asks another to end in the middle of rounds, and starts one that comes late.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

from fedtide.deploy.template import init
from fedtide.deploy.up import Deployment
from fedtide.record.deployment import newest

STUDY = """
data = {{ name = "digits", partition = {{ kind = "dirichlet", alpha = 0.5 }} }}
population = {{ kind = "{kind}", clients = {clients}, rounds = {rounds} }}
train = {{ model = "linear", steps = 3, lr = 0.1 }}
engine = {{ kind = "loop", flower = {{ deadline = {deadline}, wait = 300, minimum = 1 }} }}
"""
IDLE = 20  # seconds over which idle processes are watched


def app(folder: Path, **settings) -> Path:
    (folder / "study.toml").write_text(STUDY.format(**settings))
    init(folder / "study.toml", folder / "app")
    return folder / "app"


def used(home: Path) -> dict[str, tuple[float, float]]:
    """CPU seconds and gigabytes of the clients' processes, and of all others of a deployment."""
    found = {"clients": (0.0, 0.0), "server": (0.0, 0.0)}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}".encode() not in (place / "environ").read_bytes():
                continue
            command = (place / "cmdline").read_bytes()
            times = (place / "stat").read_text().rpartition(")")[2].split()[11:15]
            pages = (place / "smaps_rollup").read_text().split("Pss:")[1].split()[0]
        except (OSError, IndexError):
            continue
        mine = b"client" in command or b"supernode" in command
        cpu, memory = found["clients" if mine else "server"]
        cpu += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        found["clients" if mine else "server"] = cpu, memory + int(pages) / 1e6
    return found


def journal(out: Path) -> list[dict]:
    (path,) = out.glob("study/1/cells/*/*/journal.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def rounds(folder: Path, clients: int, count: int, cold: bool) -> None:
    home, out, began = folder / "flower", folder / "out", time.monotonic()
    place = Deployment(app(folder, kind="fixed", clients=clients, rounds=count, deadline=300), home)
    with place:
        place.start_server()
        place.start_client(*range(clients), cold=cold)
        for line in place.run(out, clients):
            if line.endswith("are here"):
                print(f"all clients are here after {time.monotonic() - began:.0f} s")
                first = used(home)
        last = used(home)
        time.sleep(IDLE / 2)
        before = used(home)
        time.sleep(IDLE)
        idle = sum(used(home)[who][0] - before[who][0] for who in before) / IDLE
    seconds = [sum(line["seconds"].values()) for line in journal(out)]
    print("seconds of rounds:", *(f"{each:.2f}" for each in seconds))
    print(f"a round: {sum(seconds) / count:.2f} s")
    cpu = (last["clients"][0] - first["clients"][0]) / (clients * count)
    print(
        f"CPU of clients: {cpu:.3f} s a message; memory: {sum(m for _, m in last.values()):.2f} GB"
    )
    print(f"idle: {idle:.2f} cores")


def departures(folder: Path) -> None:
    """Client 1 is killed in round 2, client 2 is asked to end in round 6, client 3 comes after round 8."""
    home, out = folder / "flower", folder / "out"
    with Deployment(app(folder, kind="live", clients=4, rounds=40, deadline=10), home) as place:
        place.start_server()
        families = {number: place.start_client(number) for number in range(3)}
        for line in place.run(out, 3):
            if "round 1:" in line:
                Thread(target=signalled, args=(home, 1, families[1].pid, signal.SIGKILL)).start()
            if "round 5:" in line:
                Thread(target=signalled, args=(home, 2, families[2].pid, signal.SIGTERM)).start()
            if "round 8:" in line:
                place.start_client(3)
    _, state = newest(out)
    for t, seconds, cohort, population in state.rounds:
        print(f"round {t}: {cohort} of {population} clients, {seconds:.2f} s")
    print(*state.news, sep="\n")


def signalled(home: Path, number: int, pid: int, sign: int) -> None:
    """Send a signal to a client as soon as it receives the next message."""

    def letters():
        return (home / f"client-{number}.log").read_text(errors="replace").count("Receiving: train")

    before = letters()
    while letters() <= before:
        time.sleep(0.005)
    (os.killpg if sign == signal.SIGKILL else os.kill)(pid, sign)


what, *numbers = [*sys.argv[1:], "rounds"][: len(sys.argv) - 1 or 1]
with tempfile.TemporaryDirectory() as name:
    if what == "departures":
        departures(Path(name))
    else:
        sizes = [int(word) for word in numbers if word.isdecimal()]
        clients, count = [*sizes, *(3, 8)[len(sizes) :]]
        rounds(Path(name), clients, count, "cold" in numbers)
