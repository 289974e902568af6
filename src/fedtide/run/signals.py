"""Ctrl-C and kill: the first signal asks to stop after the round, a second one ends everything at once."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

HEARD = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"


class Signals:
    """Inside, SIGINT and SIGTERM only request a stop after the round."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that came; 0: none
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._hear) for number in HEARD}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> bool:
        """Has a signal come?"""
        return self.number > 0

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), SHOW_CURSOR)  # which the progress bar hides
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.number = number
        # Not print: the signal may have come in the middle of another one.
        os.write(2, b"\nfedtide: stopping after this round; once more stops at once.\n")
