"""Connect to a Ray cluster, or start one on this machine until the run ends; idle actors are reused."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray

from fedtide.core.errors import EngineError
from fedtide.engines.ray.actor import Actor

QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class Place(NamedTuple):
    """The CPUs and GPUs of an actor."""

    cpus: int
    gpus: float


class ActorPool:
    """Idle actors: a process takes seconds to start, so the runs of a study use the same ones."""

    def __init__(self) -> None:
        self.users = 0  # how many `connected` are open
        self._idle: list[tuple[Place, Any]] = []

    def take(self, place: Place) -> Any:
        """An actor without work, or a new one."""
        if any(size != place for size, _ in self._idle):
            self.close()  # they may hold the CPUs that this one needs
        if self._idle:
            return self._idle.pop()[1]
        cpus, gpus = place
        kind: Any = ray.remote(Actor).options(num_cpus=cpus, num_gpus=gpus)
        return kind.remote(sys.path)  # where a user's own classes lie

    def give_back(self, actor: Any, place: Place) -> None:
        """Keep an actor that has done its work for the next run."""
        self._idle.append((place, actor))

    def close(self) -> None:
        """End the processes of idle actors."""
        for _, actor in self._idle:
            ray.kill(actor)
        self._idle = []


ACTORS = ActorPool()


@contextmanager
def connected(cpus: int) -> Iterator[None]:
    """Connect to Ray inside; a connection that is already there is used, and stays.

    Otherwise RAY_ADDRESS names the cluster, or a local one with so many CPUs runs until the end.
    """
    here = not ray.is_initialized()
    if here:
        _start(cpus)
    ACTORS.users += 1
    try:
        yield
    finally:
        ACTORS.users -= 1
        if not ACTORS.users:
            ACTORS.close()
        if here:
            ray.shutdown()


def check_room(actors: int, place: Place) -> None:
    """Refuse actors that the cluster could never place: Ray would wait for ever."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for kind, each in (("CPU", place.cpus), ("GPU", place.gpus)):
        if actors * each > there.get(kind, 0):
            raise EngineError(
                f"engine.actors must fit into the Ray cluster: {actors} actors with {each:g} {kind} each. "
                f"Got a cluster with {there.get(kind, 0):g}. Choose fewer or use a larger cluster."
            )


def _start(cpus: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    address = os.environ.get("RAY_ADDRESS")
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address:
            _knock(address)
            ray.init(**QUIET)
        else:
            ray.init("local", num_cpus=cpus, include_dashboard=False, **QUIET)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"RAY_ADDRESS = {address!r}" if address else "this machine"
        raise EngineError(
            f"engine.kind = 'ray' must reach a Ray cluster. Got from {where}: {error}. "
            "Check the address with `ray status`, or unset RAY_ADDRESS to use this machine."
        ) from error
    # Ray installs its own handler for SIGTERM; restore the one from before.
    if before != signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _knock(address: str) -> None:
    """Raise an OSError if nothing listens at an address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
