"""Freed memory is kept for the next step instead of being given back to the system."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_freed_memory() -> None:
    """Ask glibc not to return large blocks: a step frees what the next one asks for again.

    Without this the system clears every page anew, which takes up to a third of the time of large models.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):  # not so with musl
            library.mallopt(_TRIM_THRESHOLD, 1 << 30)
            library.mallopt(_MMAP_THRESHOLD, 1 << 30)
