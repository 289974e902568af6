"""Compiling kernels with numba (`fedtide[fast]`): once for an installation, and by one process at a time."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from os import environ
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite.binding import get_host_cpu_name
from numba import __version__ as numba_version
from numba import njit

if sys.platform != "win32":
    from fcntl import LOCK_EX, flock

Function = TypeVar("Function", bound=Callable[..., object])

MADE_WITH = f" and numba {numba_version}"
TARGET = f", compiled for {environ.get('NUMBA_CPU_NAME') or get_host_cpu_name()}"
NOWHERE = (
    "It cannot be kept for the next run: let NUMBA_CACHE_DIR name a folder that can be written to."
)

log = logging.getLogger("fedtide")


def compiled(function: Function) -> Function:
    """Allow sums in any order and fused operations, but keep NaN and infinity: a run must notice them."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # numba finds no folder to write to: every process compiles for itself
        return cast(Function, njit(**options)(function))


@contextmanager
def compiling(kernel: Any) -> Iterator[None]:
    """Inside, this kernel is compiled or loaded; a compilation is announced, because it takes seconds."""
    folder, code = kernel.stats.cache_path, kernel.py_func.__code__
    if parent_process() is None:
        stored = f"{Path(code.co_filename).stem}.{code.co_name}-{code.co_firstlineno}.*.nbi"
        if folder is None:
            log.warning("Compiling for this processor: about ten seconds. %s", NOWHERE)
        elif not any(Path(folder).glob(stored)):
            log.warning(
                "Compiling for this processor: about ten seconds, once for an installation."
            )
    with _alone(folder):
        yield


@contextmanager
def _alone(folder: str | None) -> Iterator[None]:
    """One process compiles, the others wait and load the compiled code.

    Two that write to numba's cache at once may each give its code the name of the other's.
    """
    if folder is None or sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            flock(handle, LOCK_EX)
        yield
    finally:
        os.close(handle)
