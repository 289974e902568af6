"""Errors of clients in a line of text: where they occurred and, if their owner shares it, what they said."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LENGTH = 2000  # characters of an error that travel
LINES = 20  # of the log that travel with an error
SHARE = "share_errors"  # the setting of a client under which messages and log lines travel

_log: deque[str] = deque(maxlen=LINES)


class Recorder(logging.Handler):
    """Keeps the last lines of the log of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.append(record.getMessage())

    @classmethod
    def begin(cls) -> None:
        """Record from now on."""
        root = logging.getLogger()
        if not any(isinstance(handler, cls) for handler in root.handlers):
            root.addHandler(cls())


def told(error: BaseException, settings: Mapping[str, Any], is_known: bool = False) -> str:
    """The client's number, unless the server knows it, and type, file and line of an error.

    With the client's setting `share_errors` also its message and the last lines of the log. File names are
    without folders. The whole traceback goes to the log of the client.
    """
    traceback.print_exception(error, file=sys.stderr)
    number = "" if is_known else f"client {settings.get('partition-id', '(no number)')}: "
    words = f"{number}{type(error).__name__} at {place(error)}"
    if settings.get(SHARE):
        words += f": {error}"
        words += "".join(f"\n{line}" for line in _log)
    return escaped(words)


def place(error: BaseException) -> str:
    """The file and line of an error: the last one that is not inside an installed package, if any is not."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_installed(f.filename)] or frames
    return (
        f"{Path(own[-1].filename).name}:{own[-1].lineno}, in {own[-1].name}"
        if own
        else "an unknown place"
    )


def _is_installed(file: str) -> bool:
    parts = Path(file).parts
    package = Path(__file__).parents[1].parts
    return "site-packages" in parts or parts[: len(package)] == package or file.startswith("<")


def escaped(words: str) -> str:
    """The text in one line without control characters, cut to `LENGTH`; for text that others wrote."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in words[:LENGTH]
    )
    return shown[:LENGTH]
