"""Space on the disk for temporary files that are mapped into memory.

Writing to a mapped file on a full disk kills the process with SIGBUS. The space is therefore allocated
beforehand, where a full disk is an ordinary error.
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
    """Allocate space for a part of a file that was never written, or raise an OSError."""
    if size and hasattr(os, "posix_fallocate"):  # macOS and Windows have none
        try:
            os.posix_fallocate(file.fileno(), start, size)
            return
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # some C libraries and file systems cannot
                raise
    file.seek(start)
    while size > 0:
        size -= file.write(bytes(min(size, BLOCK)))


@contextmanager
def room_for(size: int, where: str, instead: str) -> Iterator[None]:
    """Turn an OSError into an `EngineError` that says what to do if the temporary folder is full.

    `where` is the setting that needs `size` more bytes, `instead` what the user may change.
    """
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "the temporary folder")
        raise EngineError(
            f"{where} must have room for {size:,} more bytes in {folder}. Got: "
            f"{error.strerror or error}. Set TMPDIR to a folder on a larger disk, or {instead}."
        ) from error
