"""Clients of a Flower app in this process: real messages, a real ClientApp, a mailbox for a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedtide.deploy.client import client_app


class Clock:
    """Time that passes only while somebody waits, so that no test depends on the speed of a machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


SHARE = SimpleNamespace(OWN=False)  # the hook of an app whose clients share the study's data


class Village(Grid):
    """One inhabitant per node; `asleep` ones do not answer, `absent` ones are not even listed."""

    clock = Clock()  # a new one for each test

    def __init__(self, folder: Path, nodes: dict[int, dict[str, Any]], hook: Any = SHARE) -> None:
        for name in ("run_id", "node_id", "task_id"):  # in a ServerApp, Flower sets them
            setattr(TaskIdentity, name, 1)
        self.app = client_app(folder / "study.toml", hook)
        self.contexts = {
            node: Context(1, node, config, RecordDict(), {}) for node, config in nodes.items()
        }
        self.absent: set[int] = set()
        self.asleep: set[int] = set()
        self.slow: dict[int, float] = {}  # seconds that a node's replies take
        self.before: Callable[[Message], None] = lambda message: None
        self.messages: list[Message] = []
        self.replies: list[Message] = []
        self._inbox: dict[str, Message] = {}  # of all nodes
        self._mail: dict[str, tuple[float, Message]] = {}  # replies, and when they arrive

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **settings: Any) -> Any:
        raise NotImplementedError

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        raise NotImplementedError

    def get_nodes(self) -> Any:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node not in self.absent]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            message = _travelled(message)
            name = f"{len(self.messages)}"
            message.metadata.__dict__["_message_id"] = name
            self.messages.append(message)
            self.before(message)
            names.append(name)
            self._inbox[name] = message
        self._work()
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self._work()
        now = self.clock.now
        ready = [name for name in message_ids if name in self._mail and self._mail[name][0] <= now]
        return [self._mail.pop(name)[1] for name in ready]

    def _work(self) -> None:
        """Everybody who is awake answers what has come, in order."""
        for name, message in list(self._inbox.items()):
            node = message.metadata.dst_node_id
            if node not in self.asleep | self.absent and node in self.contexts:
                reply = self._answer(self._inbox.pop(name))
                self._mail[name] = (self.clock.now + self.slow.get(node, 0), reply)

    def _answer(self, message: Message) -> Message:
        try:
            reply = _travelled(self.app(message, self.contexts[message.metadata.dst_node_id]))
            self.replies.append(reply)
            return reply
        except Exception as error:  # as Flower does
            return Message(Error(0, repr(error)), reply_to=message)


def _travelled(message: Message) -> Message:
    """The message after it went over the wire."""
    message.metadata.__dict__.setdefault("_message_id", "")
    return message_from_proto(message_to_proto(message))
