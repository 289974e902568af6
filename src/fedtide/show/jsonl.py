"""What another program reads while a study runs: one JSON object per round."""

from __future__ import annotations

import json
import os
import sys

from fedtide.record.line import Progress
from fedtide.run.study import Study


class JsonLines:
    """Writes every round of a study to stdout, as soon as it is over.

    A reader that goes away (`| head`) does not end the study: its results are files.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._heard = True

    def watch(self, news: Progress) -> None:
        """Write a finished round: which run it is of, then the journal's line."""
        if not self._heard:
            return
        settings = self._study.cells[news.cell].settings
        run = {"study": self._study.name, "settings": dict(settings), "seed": news.seed}
        try:
            sys.stdout.write(json.dumps(run | news.line, allow_nan=False) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self._heard = False
            # Python flushes stdout once more at its end; give it somewhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
