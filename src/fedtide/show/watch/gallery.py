"""What the page shows: the studies of a folder and, of each that is looked at, its rounds so far."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from fedtide.record.folder import StudyFolder
from fedtide.show.report.colours import look
from fedtide.show.watch.tail import Rewritten, Tail

READ = 8 << 20  # bytes of journals read for one answer, so that it comes soon
SENT = 20_000  # rounds in one answer
PATIENCE = (
    30.0  # seconds without news after which a run may have stopped, or ten of its longest rounds
)

# What a round is sent as; the page counts on this order.
COLUMNS = ("session", "population", "cohort", "accuracy", "loss")
Event = tuple[Any, ...]  # run, t, the columns, seconds


class Gallery:
    """Follows all runs of all studies in a folder, of one study, or the one run that the folder is."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._walls: dict[str, Wall] = {}
        self._lock = Lock()  # one thread reads at a time

    def studies(self) -> list[dict[str, Any]]:
        """Every run of a study and how far it is, the one with the latest news first."""
        with self._lock:
            walls = {name: self._wall(name, path) for name, path in self._paths().items()}
            self._walls = {name: wall for name, wall in walls.items() if wall}
            for wall in self._walls.values():
                if not wall.is_finished:
                    wall.look()
            found = [{"name": name, **wall.progress()} for name, wall in self._walls.items()]
        return sorted(found, key=lambda study: (study["age"], study["name"]))

    def study(self, name: str, epoch: str, since: int) -> dict[str, Any] | None:
        """One study with its rounds from the number `since` on; from the first, if its epoch is another."""
        with self._lock:
            path = self._paths().get(name)  # never a path made of what was asked for
            wall = self._wall(name, path) if path else None
            if wall is None:
                return None
            self._walls[name] = wall
            wall.look()
            since = since if epoch == wall.epoch else 0
            events = wall.events[since : since + SENT]
            more = wall.behind or since + len(events) < len(wall.events)
            return {
                "name": name,
                "epoch": wall.epoch,
                "since": since,
                "more": more,
                "events": events,
                **wall.about(),
                **wall.progress(),
            }

    def report(self, name: str) -> Path | None:
        """The report of a study, if it has one."""
        path = self._paths().get(name)
        report = path / "report.html" if path else None
        return report if report and report.is_file() and not report.is_symlink() else None

    def _paths(self) -> dict[str, Path]:
        """Every run of every study by name; links that lead out of the folder are not followed."""
        found = dict(_runs(self.root))
        if not (self.root / "study.json").is_file():
            for path in _folders(self.root):
                found |= {} if path.name.startswith(".") else dict(_runs(path))
        return found

    def _wall(self, name: str, path: Path) -> Wall | None:
        """What is known of a study; anew if it is another study by now."""
        known = self._walls.get(name)
        try:
            if known and known.is_current():
                return known
            return Wall(path)
        except (OSError, ValueError, KeyError, TypeError):  # it vanished, or is not ours
            return None


class Wall:
    """The rounds of one study's runs, as far as they were read."""

    _epochs = itertools.count(1)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = f"{os.getpid()}.{next(self._epochs)}"
        self._stamp = self._stamped()
        known = json.loads((path / "study.json").read_text(encoding="utf-8"))
        self.cells = [
            {"label": str(cell["label"]), "rounds": cell.get("rounds")} for cell in known["cells"]
        ]
        self.seeds = [int(seed) for seed in known["seeds"]]
        self.question = str(known.get("question", ""))
        self.behind = False  # there is more to read at once
        self._begin()

    def _begin(self) -> None:
        folder = StudyFolder(self.path)
        runs = itertools.product(enumerate(self.cells), self.seeds)
        paths = [folder.run(number, cell["label"], seed) for (number, cell), seed in runs]
        self.events: list[Event] = []
        self._tails = [Tail(path / "journal.jsonl") for path in paths]
        self._ends: set[int] = set()  # runs that have come to their end
        self._longest = 0.0  # seconds of a round

    def _stamped(self) -> tuple[int, int]:
        about = (self.path / "study.json").stat()
        return about.st_ino, about.st_mtime_ns

    def is_current(self) -> bool:
        return self._stamped() == self._stamp

    @property
    def is_finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def look(self) -> None:
        """Read what was written since the last look."""
        try:
            self._read()
        except Rewritten:  # a run went on from an earlier round, or anew: so does the page
            self.epoch = f"{os.getpid()}.{next(self._epochs)}"
            self._begin()
            self.behind = True
        except OSError:
            self.behind = False

    def _read(self) -> None:
        left = READ
        for number, tail in enumerate(self._tails):
            if number in self._ends:
                continue
            ended = (tail.path.parent / "run.json").is_file()  # before the last read, not after
            lines, size = tail.read(left)
            left -= size
            self.events += [self._event(number, line) for line in lines]
            if left <= 0:
                break
            if ended:
                self._ends.add(number)
        self.behind = left <= 0

    def _event(self, run: int, line: Mapping[str, Any]) -> Event:
        seconds = sum(line["seconds"].values())
        self._longest = max(self._longest, seconds)
        return (run, line["t"], *(line[column] for column in COLUMNS), round(seconds, 3))

    def progress(self) -> dict[str, Any]:
        """How far the study is, and since when it has been silent."""
        rounds = [cell["rounds"] for cell in self.cells]
        total = sum(rounds) * len(self.seeds) if None not in rounds else None
        finished = self.is_finished
        stamps = [tail.grown for tail in self._tails] + [self._stamp[1] / 1e9]
        age = max(0.0, time() - max(stamps))
        quiet = age > max(PATIENCE, 10 * self._longest) and not is_held(self.path)
        return {
            "state": "finished" if finished else "quiet" if quiet else "running",
            "age": round(age, 1),
            "rounds": total if finished and not self.events else len(self.events),
            "total": total,
            "runs": len(self._tails),
            "ended": len(self._tails) if finished else len(self._ends),
        }

    def about(self) -> dict[str, Any]:
        """What the study is, for its title and its legend."""
        return {
            "question": self.question,
            "seeds": self.seeds,
            "cells": [
                {**cell, "colour": look(number).colour, "dash": look(number).dash}
                for number, cell in enumerate(self.cells)
            ],
            "report": (self.path / "report.html").is_file(),
        }


def _runs(study: Path) -> Iterator[tuple[str, Path]]:
    """The runs in a study's folder as <study>/<number>; the folder itself, if that is where results lie."""
    if (study / "study.json").is_file():
        yield f"{study.parent.name}/{study.name}" if study.name.isdecimal() else study.name, study
    for path in _folders(study):
        if path.name.isdecimal() and (path / "study.json").is_file():
            yield f"{study.name}/{path.name}", path


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # not there yet, or no longer
        return []
    return [root / name for name in sorted(names)]


def is_held(path: Path) -> bool:
    """Is a process known to hold this folder, as one that runs the study does? Linux can tell."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return any("FLOCK" in lock and lock.split()[-3].endswith(f":{inode}") for lock in locks)
