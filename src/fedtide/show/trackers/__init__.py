"""Trackers receive the lines of the journals, in the process that started the study.

The journals are the record: a tracker that fails is left out with a warning, and the study goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from fedtide.core.kinds import Kinds
from fedtide.record.line import Line, leaves
from fedtide.show.trackers.base import Logbook, Tracked, Tracker
from fedtide.show.trackers.mlflow import MLflow
from fedtide.show.trackers.tensorboard import TensorBoard
from fedtide.show.trackers.wandb import WandB

__all__ = ["TRACKERS", "Logbook", "Tracked", "Tracker", "Tracking", "numbers"]

TRACKERS = Kinds(
    "trackers",
    Tracker,
    {
        "tensorboard": TensorBoard,
        "mlflow": MLflow,
        "wandb": WandB,
    },
)
RunKey = tuple[int, int]  # of a run: the number of its cell and its seed


class Tracking:
    """All trackers of a study; there may be none."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        study: str,
        source: str,
        folder: Path,
        runs: Mapping[RunKey, Tracked],
    ) -> None:
        self._followers = [_Follower(t.open(study, source, folder), t) for t in trackers]
        self._runs = runs

    def write(self, key: RunKey, line: Line) -> None:
        """Pass a finished round to every tracker; the last round ends the run.

        A resumed study passes all its rounds again. Runs that had ended before are not among `runs`, and
        their rounds are ignored.
        """
        if key in self._runs:
            found = numbers(line)
            for follower in self._followers:
                follower.write(key, self._runs[key], line["t"], found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for follower in self._followers:
            follower.close()


class _Follower:
    """One tracker with the runs that it follows; after its first error it does nothing more."""

    def __init__(self, book: Logbook, tracker: Tracker) -> None:
        self._book = book
        self._name = type(tracker).__name__
        self._pages: dict[RunKey, Any] = {}  # the handles of runs that have begun
        self._works = True

    def write(self, key: RunKey, run: Tracked, t: int, found: Mapping[str, float]) -> None:
        if not self._works:
            return
        try:
            if key not in self._pages:
                self._pages[key] = self._book.begin(run)
            self._book.write(self._pages[key], t, found)
            if t + 1 == run.rounds:
                self._book.end(self._pages.pop(key), finished=True)
        except Exception as error:  # the tool may raise any exception
            self._give_up(error)

    def close(self) -> None:
        try:
            for page in self._pages.values():
                self._book.end(page, finished=False)
            self._book.close()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._works:
            warnings.warn(
                f"track: {self._name} stopped following the study ({type(error).__name__}: {error}). "
                "The journals of the study are complete.",
                RuntimeWarning,
                stacklevel=2,
            )
        self._works = False


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of a journal line but the round; those of tables within it as `table/name`."""
    return {
        "/".join(path): float(value)
        for path, value in leaves(line)
        if isinstance(value, int | float) and path != ("t",)
    }
