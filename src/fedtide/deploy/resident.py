"""The processes of clients on this machine, forked from one that has loaded torch and Flower.

    supervisor            loads the libraries, forks the others, starts them again if they crash
      SuperNode           Flower's own: speaks to the server, has threads
      worker              keeps app, data and models; single-threaded, as a fork needs
        one per message   trains and replies; a crash costs this one message

A worker that uses an accelerator, or in which a library has started threads, cannot fork safely: it
answers messages itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from fedtide.deploy.errors import told
from fedtide.deploy.nodes import ClientStart
from fedtide.deploy.prepared import Prepared, RunKey
from fedtide.deploy.up import free_port
from fedtide.deploy.warm import Claim, Credentials, answer, loaded, preload, supernode

SIZE = 1 << 16  # bytes of a note between processes
ATTEMPTS = 3  # workers that are asked to answer a message, if the one before ended
BEGUN = "begun"
PAUSE = 1.0  # seconds before a worker that lived less long is started again
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def run(starts: Sequence[ClientStart]) -> int:
    """Run these clients until they are stopped; the exit code of the first that failed, or 0."""
    preload()
    gc.collect()
    gc.freeze()  # pages that nothing writes to are shared by all processes
    with TemporaryDirectory(prefix="fedtide-") as folder:
        return Supervisor([ClientProcesses(start, Path(folder)) for start in starts]).run()


class ClientProcesses:
    """The two processes of a client, and the channel between them."""

    def __init__(self, start: ClientStart, folder: Path) -> None:
        self.start = start
        self.credentials = Credentials(
            f"127.0.0.1:{free_port()}", folder / f"secret-{start.number}"
        )
        self.credentials.secret.touch(mode=0o600)
        self.credentials.secret.write_bytes(os.urandom(32))
        self.here, self.there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.node = fork(self._run_node, signal.SIGTERM, start.log)
        self.started = 0.0
        self.worker = 0
        self.start_worker()

    def start_worker(self) -> None:
        """Fork a worker, which takes messages from the channel."""
        self.started = time.monotonic()
        self.worker = fork(self._run_worker, signal.SIGKILL, self.start.log)

    def replace_worker(self) -> None:
        """Start a worker in place of one that has ended; it takes the messages that are not taken yet."""
        if time.monotonic() - self.started < PAUSE:
            time.sleep(PAUSE)
        self.start_worker()

    def _run_node(self) -> None:
        port = self.credentials.address.rpartition(":")[2]
        arguments = [*self.start.arguments, "--isolation", "process", "--host", "127.0.0.1"]
        arguments += ["--port", port, "--superexec-auth-secret-file", str(self.credentials.secret)]
        supernode(arguments, self.credentials, self._work)

    def _work(self, task: Claim) -> str | None:
        """Let the worker answer a message, and wait until it is; what went wrong, if it could not.

        The process that answers holds the other end of a pipe, so that its end is noticed. If none has
        begun, because the worker ended, the next worker is asked.
        """
        for _ in range(ATTEMPTS):
            reader, writer = os.pipe()
            socket.send_fds(self.here, [json.dumps(task._asdict()).encode()], [writer])
            os.close(writer)
            with open(reader, encoding="utf-8") as pipe:
                if pipe.readline():
                    return (
                        json.loads(pipe.readline() or '"its process ended without a word"') or None
                    )
        return "its process ended while it loaded the app or the data"

    def _run_worker(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the SuperNode, which leaves
        Worker(self.there, self.credentials.address).run()


class Supervisor:
    """Watches the processes of clients."""

    def __init__(self, clients: Sequence[ClientProcesses]) -> None:
        self.clients, self.code, self.stopping = list(clients), 0, False

    def run(self) -> int:
        """Return when every SuperNode has ended."""
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, self._stop)
        while self.clients:
            pid, status = os.waitpid(-1, 0)
            for client in [c for c in self.clients if pid in (c.node, c.worker)]:
                if pid == client.worker:
                    client.replace_worker()
                else:
                    os.kill(client.worker, signal.SIGKILL)
                    os.waitpid(client.worker, 0)
                    self.clients.remove(client)
                    self.code = self.code or (0 if self.stopping else _exit_code(status))
        return self.code

    def _stop(self, sign: int, frame: object) -> None:
        self.stopping = True
        for client in self.clients:
            with suppress(ProcessLookupError):
                os.kill(client.node, signal.SIGTERM)


class Worker:
    """Keeps an app with its data, and forks for each message."""

    def __init__(self, channel: socket.socket, address: str) -> None:
        self.channel, self.address = channel, address
        self.name: tuple[str, ...] = ()
        self.app: Any = None
        self.prepared: Prepared | None = None

    def run(self) -> None:
        """Answer messages until the supervisor ends this process."""
        while True:
            note, (end, *_), _, _ = socket.recv_fds(self.channel, SIZE, 1)
            about = json.loads(note)
            task = Claim(about["token"], tuple(about["app"]), about["settings"])
            if self.name and self.name != task.app:
                return  # modules of two apps may have the same names: the next worker answers
            self._prepare(task)
            wanted = self._forked(task, end) if self._may_fork() else self._answered(task, end)
            os.close(end)
            self._build(task.settings, wanted)

    def _prepare(self, task: Claim) -> None:
        """Load app and data before the fork, so that every message finds them."""
        self.name = task.app
        if self.app is None:
            with suppress(Exception):  # the same error occurs, and is reported, when it answers
                self.app = loaded(task.app)
                self.prepared = getattr(self.app, "prepared", None)
                if self.prepared:
                    self.prepared.data(task.settings)

    def _build(self, settings: Mapping[str, Any], wanted: Sequence[RunKey]) -> None:
        """Build what the last message had to build, for the messages that follow."""
        for run in wanted:
            if self.prepared:
                with suppress(Exception):  # as above
                    self.prepared.build(settings, run)
        gc.collect()
        gc.freeze()

    def _may_fork(self) -> bool:
        """Is a fork safe: only one thread, and no computing on an accelerator?"""
        try:
            threads = len(os.listdir("/proc/self/task"))
        except OSError:
            return False
        return threads == 1 and (self.prepared is None or self.prepared.is_on_cpu())

    def _forked(self, task: Claim, end: int) -> list[RunKey]:
        """Let a new process answer; it also says so, and does not need this process any more."""
        reader, writer = os.pipe()

        def child() -> None:
            os.close(reader)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _write(writer, self._answered(task, end))

        pid = fork(child)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            wanted = json.loads(pipe.readline() or "[]")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            _write(end, f"its process ended {_words(code)}")
        return [RunKey(*run) for run in wanted]

    def _answered(self, task: Claim, end: int) -> list[RunKey]:
        """Answer the message; the runs for which a world had to be built."""

        def described(error: Exception) -> str:
            return told(error, task.settings)

        _write(end, BEGUN)
        answer(task, self.address, lambda: self.app or loaded(task.app), described)
        _write(end, "")
        if self.prepared is None:
            return []
        wanted, self.prepared.wanted = sorted(self.prepared.wanted), set()
        return wanted


def fork(work: Callable[[], None], when_parent_dies: int = 0, log: Path | None = None) -> int:
    """Do this work in a new process, which ends with it; the process's number.

    With `when_parent_dies` it receives this signal when the process that started it ends.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(work, when_parent_dies, parent, log)
    return pid


def _child(work: Callable[[], None], sign: int, parent: int, log: Path | None) -> NoReturn:
    code = 1
    try:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        if sign:
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, sign)
            if os.getppid() != parent:  # it died before this was asked for
                os._exit(1)
        if log:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
        work()
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _write(end: int, note: Any) -> None:
    with suppress(BrokenPipeError):  # the SuperNode has ended
        os.write(end, json.dumps(note).encode() + b"\n")


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _words(code: int) -> str:
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
