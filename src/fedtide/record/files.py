"""Files that are never half-written: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedtide.core.errors import OutputError


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Turn an error of the disk (full, read-only, gone) into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} must be a file that can be written. Got: {error.strerror or error}. "
            "Free some space or make it writable, then go on with --resume; or choose another --out."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which is renamed to `path` if no error occurs."""
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # the disk may refuse this, too
                temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)


def sync(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or none of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none of it."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file or none of it."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")
