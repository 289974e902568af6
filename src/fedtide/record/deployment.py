"""The log of a deployment, `deployment.jsonl`: clients that came, replied, failed and left, and rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG = "deployment.jsonl"  # beside the numbered folders of a study's results
LATEST = 50  # events that a state keeps as lines

Event = dict[str, Any]


@dataclass
class ClientState:
    """What is known of one client."""

    here: bool = False
    examples: int = 0
    replies: int = 0
    seconds: float | None = None  # from the last question to its reply
    failed: int = 0  # replies that were refused, or errors
    late: int = 0
    why: str = ""  # the last error, or why it has left


@dataclass
class DeploymentState:
    """A deployment after some of its events."""

    study: str = ""
    host: str = ""
    pid: int = 0
    since: float = 0.0  # seconds since 1970
    last: float = 0.0  # time of the last event
    folder: str = ""  # of the results, once they begin
    ended: str = ""  # "done", "failed", or empty
    why: str = ""  # of a failure
    clients: dict[int, ClientState] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)  # clients that were asked and have not replied
    rounds: list[tuple[int, float, int, int]] = field(
        default_factory=list
    )  # t, seconds, cohort, population
    news: list[str] = field(
        default_factory=list
    )  # errors, arrivals and departures, the latest last

    def take(self, event: Event) -> None:
        """Update the state by one event."""
        kind, client = str(event["event"]), event.get("client")
        self.last = float(event["time"])
        if kind == "asked":
            self.waiting = list(event["clients"])
        elif kind == "begun":
            self.folder = event["folder"]
        elif kind == "round":
            keys = ("t", "seconds", "cohort", "population")
            self.rounds.append(tuple(event[key] for key in keys))
        elif kind in ("done", "failed"):
            self.ended, self.why, self.waiting = kind, str(event.get("why", "")), []
        elif client is not None:
            self._take(kind, client, event)
        elif kind == "refused":
            self._tell(f"a client cannot take part: {event['why']}")

    def _take(self, kind: str, client: int, event: Event) -> None:
        """Update the state of one client."""
        about = self.clients.setdefault(client, ClientState())
        if kind in ("replied", "refused", "left") and client in self.waiting:
            self.waiting.remove(client)
        if kind == "arrived":
            about.here, about.examples, about.why = True, event["examples"], ""
            self._tell(f"client {client} has arrived")
        elif kind == "left":
            about.here, about.why = False, event["why"]
            self._tell(f"client {client} has left: {about.why}")
        elif kind == "replied":
            about.replies, about.seconds = about.replies + 1, event["seconds"]
        elif kind == "refused":
            about.failed, about.why = about.failed + 1, event["why"]
            self._tell(f"client {client} failed: {about.why}")
        elif kind == "late":
            about.late += 1

    def _tell(self, words: str) -> None:
        self.news = [*self.news, words][-LATEST:]


def states(lines: Iterable[str]) -> list[DeploymentState]:
    """The deployments in a log, the latest last."""
    found: list[DeploymentState] = []
    for line in lines:
        if not line.endswith("\n"):
            break  # it is being written
        event = json.loads(line)
        if event["event"] == "server":
            began = event["time"]
            found.append(DeploymentState(event["study"], event["host"], event["pid"], began, began))
        elif found:
            found[-1].take(event)
    return found


def state_of(folder: Path) -> DeploymentState | None:
    """The deployment that wrote this folder of results; None if it is no deployment's."""
    path = folder.parent / LOG
    if not path.is_file():
        return None
    began = (folder / "study.json").stat().st_mtime
    with path.open(encoding="utf-8") as lines:
        mine = [
            state
            for state in states(lines)
            if state.folder == folder.name
            or not (state.folder or state.ended or began < state.since)  # its first round goes on
        ]
    return mine[-1] if mine else None


def newest(out: Path) -> tuple[Path, DeploymentState] | None:
    """The log that was written last in a folder of results, and its latest deployment."""
    logs = sorted(out.glob(f"*/{LOG}"), key=lambda path: path.stat().st_mtime)
    if not logs:
        return None
    with logs[-1].open(encoding="utf-8") as lines:
        found = states(lines)
    return (logs[-1], found[-1]) if found else None
