"""Freed memory is kept for the next step instead of being given back to the system."""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)
_LARGE = 64 << 20  # blocks of tables, not of steps: these go back to the system


def keep_freed_memory() -> None:
    """Ask glibc not to return a step's blocks: it frees what the next step asks for again.

    Without this the system may clear every page anew, again and again. What is kept is kept in as many
    places as there are cores, because that many threads work at a time; glibc would have eight times as many.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # not so with musl
            library.mallopt(_TRIM_THRESHOLD, 4 * _LARGE)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
            library.mallopt(_ARENA_MAX, os.cpu_count() or 1)
