"""Errors of clients in a line of text: where they occurred and, if their owner shares it, what they said."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import deque
from pathlib import Path

LENGTH = 2000  # characters of an error that travel
LINES = 20  # of the log that travel with an error
SHARE = "share_errors"  # the setting of a client under which messages and log lines travel

_log: deque[str] = deque(maxlen=LINES)


class Recorder(logging.Handler):
    """Keeps the last lines of the log of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.append(record.getMessage())


def told(error: BaseException, share: bool) -> str:
    """Type, file and line of an error; also its message and the last log lines if they are shared.

    File names are without folders. The whole traceback goes to the log of the client.
    """
    traceback.print_exception(error, file=sys.stderr)
    words = f"{type(error).__name__} at {place(error)}"
    if share:
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
