"""What happens in a deployment, as lines for people and as JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time
from typing import Any

from fedtide.deploy.errors import escaped

QUIET = 3.0  # seconds after which a wait is mentioned


class Events:
    """Writes each event to a file, if there is one, and says what people should know.

    A line has `time` (seconds since 1970) and `event`: `server` (a server began), `arrived` and `left` (a
    client), `refused` (a reply or a client), `asked`, `replied`, `late`, `begun` (the folder of the results),
    `round`, `done` or `failed`. `fedtide deploy status` and `fedtide watch` read them.
    """

    def __init__(
        self, path: Path | None = None, say: Callable[[str], None] = lambda words: None
    ) -> None:
        self._path, self._say, self._said = path, say, monotonic()
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)

    def note(self, event: str, words: str = "", **facts: Any) -> None:
        """Write an event and, if there are words for people, say them in one line."""
        if self._path:
            line = json.dumps({"time": round(time(), 3), "event": event, **facts})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        if words:
            self.say(words)

    def say(self, words: str) -> None:
        """Say something in one line; control characters are escaped, as others may have written it."""
        self._said = monotonic()
        self._say(escaped(words))

    def waiting(self, words: Callable[[], str]) -> None:
        """Say what is waited for, if nothing was said for a while."""
        if monotonic() - self._said >= QUIET:
            self.say(words())
