"""Where Flower is touched behind its public API, so that its waits are short and its processes stay warm.

Flower starts a process for every message, waits three seconds between two looks for messages, and a second
or more for parts of a message that are still on their way. This file replaces those waits, and lets a
resident process do the work. If Flower no longer has one of the parts in `PARTS`, `missing` says so, and
clients start cold, as Flower does it.
"""

from __future__ import annotations

import fcntl
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Error, Message

# Everything of Flower that this file uses beside its public API.
NODE = "flwr.supernode.start_client_internal"
GRID = "flwr.superlink.grid.http_grid"
EXECUTOR = "flwr.supernode.runtime.run_clientapp"
PARTS = {
    NODE: (
        "time",
        "pull_objects",
        "_pull_and_store_message",
        "_push_messages",
        "_insert_message",
    ),
    GRID: ("pull_objects",),
    EXECUTOR: (
        "HeartbeatSender",
        "RuntimeHttpClient",
        "RuntimeTokenHttpInterceptor",
        "RuntimeVersionHttpInterceptor",
        "get_load_client_app_fn",
        "install_from_fab",
        "make_simple_http_retry_invoker",
        "make_task_heartbeat_fn_http",
        "pull_and_inflate_object_from_tree",
        "pull_task_input",
        "push_message",
        "push_task_output",
    ),
    "flwr.supernode.cli.flower_supernode": ("flower_supernode",),
    "flwr.supernode.main": ("create_app",),
    "flwr.supercore.interceptors": ("SuperExecAuthHttpInterceptor",),
    "flwr.proto.runtime_pb2": ("AcquireTaskRequest",),
    "flwr.supercore.constant": ("TaskType",),
    "flwr.common.constant": ("ErrorCode", "SubStatus"),
    "flwr.supercore.utils": ("get_flwr_home",),
}
# What these parts import when they first run: imported before processes are forked, it is there for all.
LATER = (
    "anyio._backends._asyncio",
    "encodings.cp437",
    "httpcore",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
SHORTEST, LONGEST = 0.12, 2.0  # seconds between two looks for messages
BACKOFF = {"initial_backoff": 0.02, "backoff_cap": 0.5}  # seconds, for parts that are on their way


class Claim(NamedTuple):
    """A message for the resident process, as names: its content stays with the SuperNode."""

    token: str  # with which the SuperNode gives it out
    app: tuple[str, str, str]  # name, version and hash of the app
    settings: dict[str, Any]  # what the SuperNode was started with


Work = Callable[[Claim], str | None]  # answers a message; what went wrong if there is no answer


class Credentials(NamedTuple):
    """How the processes of a client speak to its SuperNode, on this machine only."""

    address: str
    secret: Path


def missing() -> list[str]:
    """The parts in `PARTS` that the installed Flower does not have."""
    absent = []
    for module, names in PARTS.items():
        try:
            found = import_module(module)
        except ImportError:
            absent.append(module)
            continue
        absent += [f"{module}.{name}" for name in names if not hasattr(found, name)]
    return absent


def preload() -> None:
    """Import what the processes of a client will need."""
    for module in [*PARTS, *LATER]:
        with suppress(ImportError):
            import_module(module)


def part(module: str) -> Any:
    """A module of Flower that is none of its public API."""
    return import_module(module)


@dataclass
class Polling:
    """Waits that are short while there is work, and grow to two seconds when there is none.

    An eighth of the time since the last message, and never less than eight times what a look for messages
    takes: a busy machine is asked less often.
    """

    last: float = field(default_factory=lambda: time.monotonic())  # when the last message came
    _woke: float = field(default_factory=lambda: time.monotonic())

    def seconds(self) -> float:
        """How long to wait now."""
        now = time.monotonic()
        wanted = max(SHORTEST, (now - self.last) / 8, 8 * (now - self._woke))
        return min(wanted, LONGEST)

    def sleep(self, at_most: float) -> None:
        """In place of time.sleep."""
        time.sleep(min(at_most, self.seconds()))
        self._woke = time.monotonic()

    def busy(self) -> None:
        """A message was there."""
        self.last = self._woke = time.monotonic()


def supernode(arguments: Sequence[str], credentials: Credentials, work: Work) -> None:
    """Run `flower-supernode` in this process, until it is stopped; `work` answers its messages."""
    node, pace = part(NODE), Polling()
    pull, push = node._pull_and_store_message, node._push_messages
    received: list[Message] = []

    def pull_and_store(**parts: Any) -> int | None:
        receive = parts["receive"]

        def noted() -> Any:
            got = receive()
            if got is not None:
                received[:] = [got[0]]
            return got

        run: int | None = pull(**parts | {"receive": noted})
        return run

    def work_and_push(state: Any, object_store: Any, **parts: Any) -> None:
        pace.busy()
        task = _acquired(state, received[0].metadata.run_id, credentials)
        problem = work(task) if task else None
        if problem:
            error = Error(part("flwr.common.constant").ErrorCode.UNKNOWN, problem)
            node._insert_message(Message(error, reply_to=received[0]), state, object_store)
        push(state=state, object_store=object_store, **parts)
        pace.busy()

    node.time, node.pull_objects = pace, partial(node.pull_objects, **BACKOFF)
    node._pull_and_store_message, node._push_messages = pull_and_store, work_and_push
    sys.argv = ["flower-supernode", *arguments]
    part("flwr.supernode.cli.flower_supernode").flower_supernode()


def _acquired(state: Any, run: int, credentials: Credentials) -> Claim | None:
    """Claim the task of the message that has come; None if the SuperNode has answered it already."""
    executor, core = part(EXECUTOR), part("flwr.supercore.interceptors")
    types = [part("flwr.supercore.constant").TaskType.CLIENT_APP]
    request = part("flwr.proto.runtime_pb2").AcquireTaskRequest(supported_task_types=types)
    signed = core.SuperExecAuthHttpInterceptor(
        master_secret=credentials.secret.read_bytes(), protected_methods=[ACQUIRE]
    )
    with _client(executor, credentials.address, signed) as client:
        claimed = client.AcquireTask(request)
    if not claimed.token:
        return None
    about = state.get_run(run)
    context = state.get_run_series_context(about.series_id)
    _install(executor, state.get_fab(about.fab_hash).content)
    app = (about.fab_id, about.fab_version, about.fab_hash)
    return Claim(claimed.token, app, dict(context.node_config))


def _install(executor: Any, content: bytes) -> None:
    """Install the app, one process at a time: clients on the same machine share the folder."""
    home = part("flwr.supercore.utils").get_flwr_home()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        executor.install_from_fab(content, skip_prompt=True)


def _client(executor: Any, address: str, credential: Any) -> Any:
    """A client of a SuperNode's Runtime API."""
    version = executor.RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    return executor.RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=[version, credential],
        retry_invoker=executor.make_simple_http_retry_invoker(),
    )


def loaded(app: tuple[str, str, str]) -> Any:
    """The ClientApp with this name, version and hash, which is installed."""
    load = part(EXECUTOR).get_load_client_app_fn("", None, True)
    return load(*app)


def answer(task: Claim, address: str, app: Callable[[], Any], told: Callable[..., str]) -> None:
    """Answer the message of a task, as a process that Flower starts would; `told` describes an error."""
    executor, known = part(EXECUTOR), part("flwr.common.constant")
    executor.pull_and_inflate_object_from_tree = partial(
        executor.pull_and_inflate_object_from_tree, **BACKOFF
    )
    token = executor.RuntimeTokenHttpInterceptor(task.token)
    with _client(executor, address, token) as client:
        heart = executor.HeartbeatSender(executor.make_task_heartbeat_fn_http(client))
        heart.start()
        try:
            message, context, *_ = executor.pull_task_input(client)
            try:
                reply, status, details = app()(message, context), known.SubStatus.COMPLETED, ""
            except Exception as error:  # reported to the server, as Flower does
                details, status = told(error), known.SubStatus.FAILED
                code = known.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply = Message(Error(code, details), reply_to=message)
            executor.push_message(client, reply, context)
            kept = context if status == known.SubStatus.COMPLETED else None
            executor.push_task_output(client, kept, status, details)
        finally:
            heart.stop()


@dataclass
class Patience:
    """Until when the server waits for parts of replies that are on their way."""

    until: float = math.inf


patience = Patience()


def hasten_server() -> None:
    """In the process of a ServerApp: look soon for parts of replies, and not beyond the deadline."""
    if missing() or hasattr(part(GRID).pull_objects, "is_short"):
        return
    pull = part(GRID).pull_objects

    def pull_objects(*args: Any, **settings: Any) -> Any:
        left = max(0.0, patience.until - time.monotonic())
        return pull(*args, **BACKOFF, max_time=left, **settings)

    pull_objects.is_short = True  # type: ignore[attr-defined]
    part(GRID).pull_objects = pull_objects
