"""Start clients on this machine: warm ones, which stay loaded, or cold ones, which Flower starts itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedtide.core.errors import require
from fedtide.deploy.keys import Keys

NO_NUMBER = -1  # the number of a client that has none of its own
# Before torch, numpy and Flower are imported. One thread per operator: a process with threads must not fork,
# and training uses one thread anyway.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


@dataclass(frozen=True)
class ClientStart:
    """What a client is started with."""

    number: int
    arguments: tuple[str, ...]  # for flower-supernode
    log: Path | None = None  # where its processes write; None: where this process does


def starts(
    server: str,
    numbers: Sequence[int],
    keys: Keys | None = None,
    settings: str = "",
    share_errors: bool = False,
    logs: Path | None = None,
) -> list[ClientStart]:
    """How to start clients with these numbers; `settings` go to the app's `of_client`.

    In the settings, {number} stands for the number of the client.
    """
    host = server.rpartition(":")[0]
    require(bool(host), "deploy client --server", "host:port, such as 127.0.0.1:8000", server)
    here = host in ("127.0.0.1", "localhost", "[::1]")
    must = "127.0.0.1 without --keys: nothing protects the connection"
    require(here or keys is not None, "deploy client --server", must, server)
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
    found = []
    for number in numbers or [_own_number(keys)]:
        words = f"partition-id={number} {settings.replace('{number}', str(number))}"
        words += " share_errors=true" if share_errors else ""
        arguments = ["--superlink", server, "--node-config", words]
        if keys:
            arguments += ["--root-certificates", str(keys.authority)]
            arguments += ["--auth-supernode-private-key", str(keys.of_client(number))]
        else:
            arguments += ["--insecure"]
        log = logs / f"client-{number}.log" if logs else None
        found.append(ClientStart(number, tuple(arguments), log))
    return found


def _own_number(keys: Keys | None) -> int:
    """The number of a client whose key is the only one in its folder; without keys, the server chooses."""
    if keys is None:
        return NO_NUMBER
    own = keys.private
    must = "given where --keys has not exactly one client-NUMBER.key"
    require(len(own) == 1, "deploy client --number", must, own)
    return own[0]


def why_cold() -> str:
    """Why clients cannot stay loaded here; empty if they can."""
    if sys.platform != "linux":
        return f"{sys.platform} cannot fork safely"
    from fedtide.deploy.warm import missing

    absent = missing()
    return f"this version of Flower has no {', '.join(absent)}" if absent else ""


def run_warm(clients: Sequence[ClientStart]) -> int:
    """Run clients whose processes stay loaded, until they are stopped; 0 if all went well."""
    from fedtide.deploy.resident import run

    return run(clients)


def run_cold(clients: Sequence[ClientStart]) -> int:
    """Run clients as Flower does: it starts a process for every message."""
    from fedtide.deploy.up import free_port

    place = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": os.pathsep.join([place, os.environ.get("PATH", "")])}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.pop(name, None)
    with ExitStack() as stack:
        processes = []
        for client in clients:
            log: IO[str] | None = None
            if client.log:
                log = stack.enter_context(client.log.open("a", encoding="utf-8"))
            command = ["flower-supernode", *client.arguments, "--port", str(free_port())]
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

        def stop(sign: int, frame: object) -> None:
            for process in processes:
                process.send_signal(signal.SIGTERM)

        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, stop)
        return max(abs(process.wait()) for process in processes)
