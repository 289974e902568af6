"""A whole deployment on this machine: SuperLink, SuperNodes, one run; nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from fedtide.core.errors import EngineError
from fedtide.deploy.keys import Keys

MARK = "fedtide: "  # the mark at the beginning of every line that the server prints for the user
START = 90.0  # seconds for a process to come up
END = 2.0  # seconds for a run that is done to end by itself, which is quicker than stopping it
GRACE = 2.0  # seconds between asking processes to end and making them
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SILENT = 4.5  # seconds without a word from the server after which that is said
TAIL = 20  # lines of a log that an error shows

Process = subprocess.Popen[str]


class Deployment:
    """The processes of one deployment; leaving it ends them all, whatever happened."""

    def __init__(
        self,
        app: Path,
        home: Path,
        keys: Keys | None = None,
        logs: Path | None = None,
        port: int = 0,
    ) -> None:
        self.app, self.home, self.keys = app.resolve(), home.resolve(), keys
        self.logs = (logs or home).resolve()
        self.address = f"127.0.0.1:{port or free_port()}"
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        for folder in (self.home, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        trust = f'root-certificates = "{self.keys.authority}"' if self.keys else "insecure = true"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{trust}\n',
            encoding="utf-8",
        )
        return self

    def __exit__(self, *problem: object) -> None:
        with undisturbed():
            stop(list(self._processes.values()))

    def start_server(self) -> Process:
        """The SuperLink; with keys it speaks TLS, and only to clients whose keys are registered."""
        host, _, port = self.address.partition(":")
        command = ["flower-superlink", "--host", host, "--port", port]
        command += ["--disable-runtime-dependency-installation"]
        if self.keys:
            command += ["--ssl-ca-certfile", str(self.keys.authority), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(self.keys.certificate)]
            command += ["--ssl-keyfile", str(self.keys.key)]
        else:
            command += ["--insecure"]
        server = self._start("server", command)
        until = time.monotonic() + START
        while not _listens(host, int(port)):
            if server.poll() is not None or time.monotonic() > until:
                raise EngineError(f"The SuperLink must come up. Got:\n{self.log('server')}")
            time.sleep(0.1)
        return server

    def register(self, number: int) -> None:
        """Make a client's public key known to the server."""
        assert self.keys is not None
        public = str(self.keys.of_client(number).with_suffix(".pub"))
        self._call(["flwr", "supernode", "register", public, "here"])

    def start_client(
        self, *numbers: int, keys: Keys | None = None, settings: str = "", cold: bool = False
    ) -> Process:
        """Start clients with these numbers, in one family of processes; tests use other `keys`."""
        keys = keys or self.keys
        command = [sys.executable, "-c", "from fedtide.cli import main; main()", "deploy", "client"]
        command += ["--server", self.address, "--logs", str(self.logs), "--share-errors"]
        command += ["--settings", settings] if settings else []
        command += ["--cold"] if cold else []
        command += ["--keys", str(keys.folder)] if keys else []
        for number in numbers:
            command += ["--number", str(number)]
        return self._start("clients-" + "-".join(map(str, numbers[:3])), command)

    def run(
        self, out: Path, clients: int, archive: Path | None = None, wait: int = 0
    ) -> Iterator[str]:
        """Run the app; yields the lines that its server prints."""
        settings = f'out="{out.resolve()}" clients={clients} wait={wait}'
        settings += f' archive="{archive.resolve()}"' if archive else ""
        command = ["flwr", "run", str(self.app), "here", "--stream", "--run-config", settings]
        run = self._start("run", command)
        told = ""
        for line in self._follow("run"):
            if MARK not in line:
                yield line
                continue
            told = line.partition(MARK)[2].strip()
            yield told
            if told.startswith(("done", "failed")):
                break
        if not told.startswith("done"):
            why = told if told.startswith("failed") else f"it ended early:\n{self.log('run')}"
            raise EngineError(f"The deployment must run to its end. Got: {why}\nLogs: {self.logs}")
        with suppress(subprocess.TimeoutExpired):
            run.wait(END)

    def log(self, name: str) -> str:
        """The end of what a process wrote."""
        path = self.logs / f"{name}.log"
        lines = (
            path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        )
        return "\n".join(lines[-TAIL:])

    def _follow(self, name: str) -> Iterator[str]:
        """What the server says, until it or the SuperLink has ended, and which processes end."""
        ended: set[str] = set()
        began = said = time.monotonic()
        doing = "Flower starts the process of the run, clients load their libraries"
        with (self.logs / f"{name}.log").open(encoding="utf-8", errors="replace") as lines:
            while True:
                gone = {n for n, process in self._processes.items() if process.poll() is not None}
                while line := lines.readline():
                    if MARK in line:
                        said, doing = time.monotonic(), "the server works, without news"
                        yield line
                for each in sorted(gone - ended - {name, "server"}):
                    yield f"{each} ended with code {self._processes[each].returncode}:\n{self.log(each)}"
                ended |= gone
                if gone & {name, "server"}:
                    return
                if time.monotonic() - said >= SILENT:
                    said = time.monotonic()
                    yield f"{doing} ({said - began:.0f} s)"
                time.sleep(0.1)

    def _start(self, name: str, command: Sequence[str]) -> Process:
        while name in self._processes:
            name += "+"
        with undisturbed(), (self.logs / f"{name}.log").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # so that its own children end with it
            )
            self._processes[name] = process
        return process

    def _call(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            command,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        if done.returncode:
            words = " ".join(command[:3])
            raise EngineError(f"`{words}` must succeed. Got:\n{done.stdout}{done.stderr}")

    def _environment(self) -> dict[str, str]:
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        return os.environ | {
            "PATH": os.pathsep.join(places),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "PYTHONUNBUFFERED": "1",
        }


def stop(processes: Sequence[Process]) -> None:
    """End these processes and all that they started."""
    groups: set[int] = set()
    for sign, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 3 * GRACE)):
        groups |= _groups(processes)
        for group in groups:
            _signal(group, sign)
        until = time.monotonic() + seconds
        while _living(processes, groups) and time.monotonic() < until:
            time.sleep(0.05)


def _groups(processes: Sequence[Process]) -> set[int]:
    """The process groups of these and of all their descendants: SuperLink puts some in their own."""
    family = _family()
    found = {process.pid for process in processes}
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in family.items() if parent in found} - found
        found, grown = found | more, bool(more)
    groups = {family[pid][1] for pid in found if pid in family} | {p.pid for p in processes}
    return groups - {os.getpgrp()}


def _family() -> dict[int, tuple[int, int]]:
    """Parent and group of every process on this machine."""
    stats = [_read(path) for path in Path("/proc").glob("[0-9]*/stat")]
    rows = [(stat.split()[0], *stat.rpartition(")")[2].split()[1:3]) for stat in stats if stat]
    if not rows:  # not Linux
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True
        )
        rows = [(row[0], row[1], row[2]) for row in map(str.split, listed.stdout.splitlines())]
    return {int(pid): (int(parent), int(group)) for pid, parent, group in rows}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has just ended
        return ""


def _signal(group: int, sign: int) -> bool:
    try:
        os.killpg(group, sign)
    except ProcessLookupError:
        return False
    return True


def _living(processes: Sequence[Process], groups: set[int]) -> bool:
    """Is a process of these groups still running?"""
    for process in processes:
        process.poll()  # or processes that have ended would count
    return any(_signal(group, 0) for group in groups)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back inside this block, so that no process is started without being recorded."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    caught: list[int] = []
    before = {sign: signal.signal(sign, lambda n, _: caught.append(n)) for sign in STOPS}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        if caught:
            signal.raise_signal(caught[0])


def free_port() -> int:
    """A free port on this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(host: str, port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(0.5)
        return one.connect_ex((host, port)) == 0
