"""Space on the disk for temporary files that are mapped into memory.

A write through a map onto a full disk kills the process with SIGBUS. So space is taken beforehand, where
its lack is an error.
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from fedtide.core.errors import EngineError

BLOCK = 1 << 20  # bytes written at a time


def allocate(file: IO[bytes], start: int, size: int) -> None:
    """Take space for a part of a file that was never written, or raise an OSError."""
    if size and hasattr(os, "posix_fallocate"):  # not so on macOS and Windows
        try:
            os.posix_fallocate(file.fileno(), start, size)
            return
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # of some C libraries and file systems
                raise
    file.seek(start)
    while size > 0:
        size -= file.write(bytes(min(size, BLOCK)))


@contextmanager
def room_for(size: int, where: str, instead: str) -> Iterator[None]:
    """Say what to do where the temporary folder has no room for so many more bytes."""
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "the temporary folder")
        raise EngineError(
            f"{where} must have room for {size:,} more bytes in {folder}. Got: "
            f"{error.strerror or error}. Set TMPDIR to a folder on a larger disk, or {instead}."
        ) from error
