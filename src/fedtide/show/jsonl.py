"""The output of `fedtide run --json` for other programs: one JSON object per round."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fedtide.record.line import Progress


class JsonLines:
    """Writes every round of a study to stdout as soon as it is over.

    `settings` are those of each cell of the study's grid. A reader that closes the pipe (`| head`) does not
    end the study, since its results are files.
    """

    def __init__(self, study: str, settings: Sequence[Mapping[str, Any]]) -> None:
        self._study, self._settings = study, settings
        self._is_open = True

    def watch(self, news: Progress) -> None:
        """Write a finished round: study, settings and seed of its run, then the journal's line."""
        if not self._is_open:
            return
        settings = dict(self._settings[news.cell])
        run = {"study": self._study, "settings": settings, "seed": news.seed}
        try:
            sys.stdout.write(json.dumps({**run, **news.line}, allow_nan=False) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self._is_open = False
            # Python flushes stdout once more at its end, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
