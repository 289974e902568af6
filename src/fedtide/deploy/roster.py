"""The clients that are connected over Flower, and messages to and from them. Every wait has an end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from math import ceil
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedtide.core.types import Ids
from fedtide.deploy.errors import escaped
from fedtide.deploy.events import Events
from fedtide.deploy.nodes import NO_NUMBER
from fedtide.deploy.warm import patience
from fedtide.engines.kinds import FlowerSettings

PAUSES = (0.05, 0.5)  # seconds between two looks into the mailbox: at first, and after a long wait
LISTED = 1.0  # seconds between two looks at who is connected, while replies are waited for
PATIENCE = 4.0  # deadlines that a message lives in Flower

log = logging.getLogger("fedtide")


class Card(NamedTuple):
    """How a client has introduced itself."""

    node: int  # Flower's address of it
    form: str  # of its examples: see `deploy.data.written`


class Open(NamedTuple):
    """A message without a reply so far: its receiver, and until when a reply is looked for."""

    whom: int
    until: float


class Wait:
    """A wait with an end: pauses that grow to a twentieth of what has passed."""

    def __init__(self, seconds: float) -> None:
        self.since = monotonic()
        self.until = self.since + seconds

    @property
    def is_over(self) -> bool:
        return monotonic() >= self.until

    @property
    def passed(self) -> float:
        return monotonic() - self.since

    def pause(self) -> None:
        """Wait a little, at most until the end."""
        shortest, longest = PAUSES
        wanted = min(max(shortest, self.passed / 20), longest)
        sleep(min(wanted, max(shortest, self.until - monotonic())))


class Roster:
    """Flower's connected nodes as numbered clients.

    A node that appears is greeted; it joins when it has answered. It has left when Flower no longer lists
    it, or when it stayed silent for `settings.misses` deadlines: then it is greeted again, and may return.
    A client has the number its node was configured with (`partition-id`), or else the lowest free one.
    """

    def __init__(
        self, grid: Grid, settings: FlowerSettings, clients: int, events: Events | None = None
    ) -> None:
        self.grid, self.settings, self.clients = grid, settings, clients
        self.events = events or Events(say=log.warning)
        self.problems: dict[int, str] = {}  # why nodes could not introduce themselves
        self.cards: dict[int, Card] = {}
        self.examples: dict[int, int] = {}  # how many each holds, also those who have left
        self.late = self.failed = 0  # replies since they were last counted
        self._greeted: dict[str, Open] = {}  # greetings, by message
        self._avoided: dict[int, float] = {}  # nodes that could not introduce themselves -> until
        self._numbers: dict[int, int] = {}  # numbers given to nodes that had none
        self._misses: dict[int, int] = {}
        self._overdue: dict[str, Open] = {}  # letters whose deadline is over, by message

    def present(self, t: int = 0) -> Ids:
        """The clients that are there now; waits a while if they are fewer than the minimum."""
        return self.gather(self.settings.minimum)

    def gather(self, count: int, seconds: float = 0.0) -> Ids:
        """The clients that are there, as soon as they are so many, or when the wait is over.

        It lasts `seconds`, or `settings.wait` where that is longer. It also ends when there are so many
        with those that could not introduce themselves.
        """
        wait = Wait(max(seconds, self.settings.wait))
        self.look()
        while len(self.cards) < count and not wait.is_over:
            if len(self.cards) + len(self.problems) >= count:
                break
            self.events.waiting(lambda: self._missing(count, wait))
            wait.pause()
            self.look()
        return np.array(sorted(self.cards), dtype=np.int64)

    def _missing(self, count: int, wait: Wait) -> str:
        here = f"clients {sorted(self.cards)} are" if self.cards else "no client is"
        asked = f", {len(self._greeted)} are introducing themselves" if self._greeted else ""
        return (
            f"{here} here{asked}; waiting for {count} "
            f"({wait.passed:.0f} of at most {wait.until - wait.since:.0f} s)"
        )

    def look(self) -> None:
        """Remove clients that have left, read introductions, and ask new nodes to introduce themselves."""
        online = set(self.grid.get_node_ids())
        for client in [c for c, card in self.cards.items() if card.node not in online]:
            self._leave(client, "it is no longer connected")
        self.problems = {n: why for n, why in self.problems.items() if n in online}
        self._greeted, self._overdue = _living(self._greeted), _living(self._overdue)
        self._read_introductions()
        known = {card.node for card in self.cards.values()}
        known |= {greeting.whom for greeting in self._greeted.values()}
        strangers = sorted(n for n in online - known if self._avoided.get(n, 0.0) <= monotonic())
        letters = [self._message(RecordDict(), node, MessageType.QUERY) for node in strangers]
        self._greeted |= self._opened(self._sent(letters, strangers))

    def ask(
        self, kind: str, letters: Mapping[int, RecordDict], enough: float = 1.0
    ) -> dict[int, RecordDict]:
        """Send each client its message; return the replies that came by the deadline, by client."""
        asked = [client for client in letters if client in self.cards]
        nodes = {client: self.cards[client].node for client in asked}
        wait, needed = Wait(self.settings.deadline), ceil(enough * len(letters) - 1e-9)
        until_listed = wait.since + LISTED
        messages = [self._message(letters[c], nodes[c], kind) for c in asked]
        waiting = self._sent(messages, asked)
        self.events.note("asked", kind=kind, clients=asked)
        replies: dict[int, RecordDict] = {}
        while waiting and len(replies) < needed:
            over = wait.is_over
            self._overdue = _living(self._overdue)
            for message in self._pull([*waiting, *self._overdue], wait.until):
                self._sort(message, waiting, replies, wait)
            if over:
                self._note_silent(waiting.values())
                break
            if monotonic() >= until_listed:
                self._without_departed(waiting, nodes)
                until_listed = monotonic() + LISTED
            if waiting and len(replies) < needed:
                self.events.waiting(lambda: self._pending(waiting, replies, wait))
                wait.pause()
        self._misses.update(dict.fromkeys(replies, 0))
        self._overdue |= self._opened(waiting)
        return replies

    def _without_departed(self, waiting: dict[str, int], nodes: Mapping[int, int]) -> None:
        """Stop waiting for clients that are no longer connected."""
        online = set(self.grid.get_node_ids())
        for name in [name for name, client in waiting.items() if nodes[client] not in online]:
            client = waiting.pop(name)
            card = self.cards.get(client)
            if card and card.node == nodes[client]:
                self._leave(client, "it is no longer connected")

    def _pending(self, waiting: Mapping[str, int], replies: Mapping[int, Any], wait: Wait) -> str:
        return (
            f"{len(replies)} replies are here, waiting for clients {sorted(waiting.values())} "
            f"({wait.passed:.0f} of at most {self.settings.deadline:g} s)"
        )

    def _leave(self, client: int, why: str) -> None:
        del self.cards[client]
        self.events.note("left", f"client {client} has left: {why}", client=client, why=why)

    def counted(self) -> dict[str, int]:
        """How many replies were late or failed since the last call; zero counts are left out."""
        counts = {"late": self.late, "failed": self.failed}
        self.late = self.failed = 0
        return {name: count for name, count in counts.items() if count}

    def refuse(self, client: int, why: str) -> None:
        """Count a reply that cannot be used."""
        self.failed += 1
        why = escaped(why)
        self.events.note("refused", f"client {client} failed: {why}", client=client, why=why)

    def _sort(
        self, message: Message, waiting: dict[str, int], got: dict[int, RecordDict], wait: Wait
    ) -> None:
        """Sort a message: a reply of this round, an error, or a late reply."""
        name = message.metadata.reply_to_message_id
        if name in self._overdue:
            client = self._overdue.pop(name).whom
            self.late += not message.has_error()
            self.events.note("late", client=client)
        elif name in waiting:
            client = waiting.pop(name)
            if message.has_error():
                self.refuse(client, str(message.error.reason))
            else:
                got[client] = message.content
                self.events.note("replied", client=client, seconds=round(wait.passed, 3))

    def _note_silent(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._misses[client] = self._misses.get(client, 0) + 1
            if self._misses[client] >= self.settings.misses:
                self._misses[client] = 0
                if client in self.cards:
                    self._leave(client, "it was silent until the deadline")

    def _read_introductions(self) -> None:
        for message in self._pull(self._greeted, monotonic() + self.settings.deadline):
            greeting = self._greeted.pop(message.metadata.reply_to_message_id)
            try:
                if message.has_error():
                    raise ValueError(message.error.reason)
                self._introduce(greeting.whom, message.content.config_records["config"])
            except (KeyError, ValueError) as error:
                why = escaped(str(error))
                self.problems[greeting.whom] = why
                self.events.note("refused", f"a client cannot take part: {why}", why=why)
                self._avoided[greeting.whom] = monotonic() + self.settings.deadline

    def _introduce(self, node: int, config: ConfigRecord) -> None:
        client = int(str(config["client"]))
        if client == NO_NUMBER:
            taken = set(self.cards) | set(self._numbers.values())
            free = (number for number in range(self.clients) if number not in taken)
            client = self._numbers.setdefault(node, next(free, self.clients))
        if not 0 <= client < self.clients:
            self._avoided[node] = float("inf")
            why = f"only clients 0 to {self.clients - 1} are expected"
            self.problems[node] = f"client {client}: {why}"
            self.events.note("refused", f"client {client}: {why}", client=client, why=why)
            return
        card, examples = Card(node, str(config["form"])), int(str(config["examples"]))
        # The last node that claims a number has it: a client that was restarted is a new node.
        if client in self.cards:
            self._avoided[self.cards[client].node] = float("inf")
            log.warning("client %d: a new node has its number, the old one is left alone", client)
        self.cards[client], self.examples[client] = card, max(0, examples)
        self.problems.pop(node, None)
        self.events.note("arrived", client=client, examples=examples)

    def _message(self, letter: RecordDict, node: int, kind: str) -> Message:
        return Message(
            letter, dst_node_id=node, message_type=kind, ttl=PATIENCE * self.settings.deadline
        )

    def _sent(self, messages: list[Message], whose: list[int]) -> dict[str, int]:
        """Push messages; return their receivers by the id that Flower gives each message."""
        names = self.grid.push_messages(messages) if messages else []
        return {name: one for name, one in zip(names, whose, strict=False) if name}

    def _pull(self, names: Iterable[str], until: float) -> list[Message]:
        """The replies to these messages that are there; parts of them may come until then."""
        wanted, patience.until = list(names), until
        return list(self.grid.pull_messages(wanted)) if wanted else []

    def _opened(self, sent: Mapping[str, int]) -> dict[str, Open]:
        """These messages as open ones, until shortly before Flower deletes them."""
        until = monotonic() + self.settings.deadline * (PATIENCE - 1.5)
        return {name: Open(whom, until) for name, whom in sent.items()}


def _living(messages: Mapping[str, Open]) -> dict[str, Open]:
    """The messages for which a reply may still come."""
    now = monotonic()
    return {name: message for name, message in messages.items() if message.until > now}
