"""Trackers listen to the lines of the journals, in the process that started the study.

The journal is the record: a tracker that breaks down says so and is left out, and the study goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedtide.record.line import Line, leaves
from fedtide.show.trackers.kinds import Logbook, Tracked, Tracker

Key = tuple[int, int]  # of a run: its cell and its seed


class Tracking:
    """All trackers of a study; with none it does nothing."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        study: str,
        source: str,
        folder: Path,
        runs: Mapping[Key, Tracked],
    ) -> None:
        self._followers = [_Follower(t.open(study, source, folder), t) for t in trackers]
        self._runs = runs

    def write(self, key: Key, line: Line) -> None:
        """Tell every tracker about a finished round; the last one ends the run.

        A resumed study tells all rounds once more: runs that had ended before are not followed again.
        """
        if key in self._runs:
            found = numbers(line)
            for follower in self._followers:
                follower.write(key, self._runs[key], line["t"], found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for follower in self._followers:
            follower.close()


class _Follower:
    """One tracker with the runs it follows."""

    def __init__(self, book: Logbook, tracker: Tracker) -> None:
        self._book = book
        self._name = type(tracker).__name__
        self._pages: dict[Key, Any] = {}
        self._works = True

    def write(self, key: Key, run: Tracked, t: int, found: Mapping[str, float]) -> None:
        if not self._works:
            return
        try:
            if key not in self._pages:
                self._pages[key] = self._book.begin(run)
            self._book.write(self._pages[key], t, found)
            if t + 1 == run.rounds:
                self._book.end(self._pages.pop(key), finished=True)
        except Exception as error:  # whatever another tool does
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
                "Its results are complete in the journals.",
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
