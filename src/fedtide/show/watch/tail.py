"""Reads a journal while it grows, every byte once."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedtide.record.line import Line


class Rewritten(Exception):
    """The file no longer begins with what was read of it."""


class Tail:
    """Reads the lines that were appended to a journal since the last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.grown = 0.0  # when the file last changed
        self._file = 0  # its inode
        self._at = 0  # bytes read
        self._rest = b""  # the beginning of an incomplete line
        self._next = 0  # the round that must come next

    def read(self, limit: int) -> tuple[list[Line], int]:
        """The new complete lines, and how many bytes were read: at most `limit`."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            if self._at:
                raise Rewritten from None
            return [], 0
        if self._at and (about.st_ino != self._file or about.st_size < self._at):
            raise Rewritten
        self.grown = about.st_mtime
        if about.st_size == self._at:
            return [], 0
        with self.path.open("rb") as file:
            self._file = os.fstat(file.fileno()).st_ino
            file.seek(self._at)
            new = file.read(limit)
        self._at += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [self._parsed(line) for line in whole], len(new)

    def _parsed(self, raw: bytes) -> Line:
        """Parse a line, which must be the next round; it is not if a resumed run has cut the journal."""
        try:
            line: Line = json.loads(raw)
            if line["t"] != self._next:
                raise Rewritten
        except (ValueError, KeyError, TypeError) as error:
            raise Rewritten from error
        self._next += 1
        return line
