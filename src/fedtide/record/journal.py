"""The journal of a run: one JSON line per round, from which all results are computed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from fedtide.core.errors import OutputError
from fedtide.record.files import writing
from fedtide.record.line import Line


class Mark(NamedTuple):
    """A position in a journal's file, and a checksum of everything before it."""

    bytes: int
    checksum: str


class Journal:
    """The lines of a run, in memory and, given a path, in a file that is written after every round.

    If the journal is not `fresh`, an existing file stays as it is until `rewind` cuts it to a mark.
    """

    def __init__(self, path: Path | None = None, fresh: bool = True) -> None:
        self.lines: list[Line] = []
        self._path, self._size, self._hash = path, 0, blake2b(digest_size=16)
        self._file: IO[bytes] | None = None
        if path:
            with writing(self._path):
                mode = "wb" if fresh or not path.exists() else "r+b"
                self._file = path.open(mode, buffering=0)  # unbuffered: a crash loses no line

    def append(self, line: Mapping[str, Any]) -> None:
        self.lines.append(cast(Line, dict(line)))
        if self._file:
            with writing(self._path):
                self._write(json.dumps(line, allow_nan=False).encode() + b"\n")

    def rewind(self, mark: Mark | None) -> None:
        """Continue from this mark, or from the beginning; later lines are removed."""
        if not self._file:
            if mark:
                raise OutputError(
                    "A run that is resumed must have the file of its journal. Got a journal without one. "
                    "Give Journal the path of that file."
                )
            return
        with writing(self._path):
            self._file.seek(0)
            kept = self._file.read(mark.bytes) if mark else b""
        self._size, self._hash = len(kept), blake2b(kept, digest_size=16)
        if mark and mark != (self._size, self._hash.hexdigest()):
            raise OutputError(
                f"{self._path} must begin with the lines that the checkpoint was written after. Got others. "
                "Restore the file, or run the study anew without --resume."
            )
        with writing(self._path):
            self._file.truncate(self._size)
            self._file.seek(self._size)
        self.lines = [json.loads(line) for line in kept.splitlines()]

    def mark(self) -> Mark:
        """The end of the journal; everything before it is flushed to disk."""
        if self._file:
            with writing(self._path):
                os.fsync(self._file.fileno())
        return Mark(self._size, self._hash.hexdigest())

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, content: bytes) -> None:
        assert self._file
        left = memoryview(content)
        while left:  # a disk that is nearly full may take only a part at a time
            left = left[self._file.write(left) :]
        self._size += len(content)
        self._hash.update(content)


def read(path: Path) -> list[Line]:
    """The lines of a journal; a last line cut short by a crash is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
