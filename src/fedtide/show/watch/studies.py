"""The data of the page: the studies in a folder and the rounds of those that are shown."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from fedtide.measure.scale import scales
from fedtide.record.deployment import state_of
from fedtide.record.folder import StudyFolder, number_of
from fedtide.show.report.colours import look
from fedtide.show.watch.tail import Rewritten, Tail

READ = 8 << 20  # bytes of journals read for one answer, so that it is quick
SENT = 20_000  # rounds in one answer
# Seconds without a new round after which a study may have stopped; at least ten of its longest rounds.
PATIENCE = 30.0

# The keys of a line that are sent; page.js relies on their order.
COLUMNS = ("session", "population", "cohort")
Event = tuple[Any, ...]  # run, t, the columns, score, loss, seconds


class FollowedStudies:
    """Follows all studies in a folder; the folder may also be that of one study or of one of its runs."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._studies: dict[str, FollowedStudy] = {}
        self._lock = Lock()  # requests come in several threads

    def studies(self) -> list[dict[str, Any]]:
        """Every folder of every study with its progress, the one with the latest round first."""
        with self._lock:
            studies = {name: self._followed(name, path) for name, path in self._paths().items()}
            self._studies = {name: study for name, study in studies.items() if study}
            for study in self._studies.values():
                if not study.is_finished:
                    study.look()
            found = [{"name": name, **study.progress()} for name, study in self._studies.items()]
        return sorted(found, key=lambda study: (study["age"], study["name"]))

    def study(self, name: str, epoch: str, since: int) -> dict[str, Any] | None:
        """One study with its rounds from number `since` on, or all of them if its epoch has changed."""
        with self._lock:
            path = self._paths().get(name)  # a request must not choose paths itself
            study = self._followed(name, path) if path else None
            if study is None:
                return None
            self._studies[name] = study
            study.look()
            since = since if epoch == study.epoch else 0
            events = study.events[since : since + SENT]
            more = study.behind or since + len(events) < len(study.events)
            return {
                "name": name,
                "epoch": study.epoch,
                "since": since,
                "more": more,
                "events": events,
                "deployment": _deployment(study.path),
                **study.about(),
                **study.progress(),
            }

    def report(self, name: str) -> Path | None:
        """The report of a study, if it has one."""
        path = self._paths().get(name)
        report = path / "report.html" if path else None
        return report if report and report.is_file() and not report.is_symlink() else None

    def _paths(self) -> dict[str, Path]:
        """The folders of all studies by name; symbolic links are not followed."""
        found = dict(_runs(self.root))
        if not (self.root / "study.json").is_file():
            for path in _folders(self.root):
                found |= {} if path.name.startswith(".") else dict(_runs(path))
        return found

    def _followed(self, name: str, path: Path) -> FollowedStudy | None:
        """The study in this folder; read anew if study.json has changed."""
        known = self._studies.get(name)
        try:
            if known and known.is_current():
                return known
            return FollowedStudy(path)
        except (OSError, ValueError, KeyError, TypeError):  # removed, or no study of FedTide
            return None


class FollowedStudy:
    """One study and the rounds of its runs that have been read so far."""

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
        self.scale = scales(known)[0]
        self.behind = False  # the last look did not read everything
        self._begin()

    def _begin(self) -> None:
        folder = StudyFolder(self.path)
        runs = itertools.product(enumerate(self.cells), self.seeds)
        paths = [folder.run(number, cell["label"], seed) for (number, cell), seed in runs]
        self.events: list[Event] = []
        self._tails = [Tail(path / "journal.jsonl") for path in paths]
        self._ends: set[int] = set()  # runs that have finished and were read to their end
        self._longest = 0.0  # seconds of the longest round

    def _stamped(self) -> tuple[int, int]:
        about = (self.path / "study.json").stat()
        return about.st_ino, about.st_mtime_ns

    def is_current(self) -> bool:
        return self._stamped() == self._stamp

    @property
    def is_finished(self) -> bool:
        return (self.path / "summary.json").is_file()

    def look(self) -> None:
        """Read what was written since the last call."""
        try:
            self._read()
        except Rewritten:  # a run was resumed or began anew: read everything again, as a new epoch
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
            # Asked before reading, so that a finished run is read to its end.
            ended = (tail.path.parent / "run.json").is_file()
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
        facts = (line[column] for column in COLUMNS)
        return (run, line["t"], *facts, self.scale.value(line), line["loss"], round(seconds, 3))

    def progress(self) -> dict[str, Any]:
        """How far the study is, and how long ago its last round was."""
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
        """Question, seeds, settings and report of the study, for title and legend."""
        return {
            "question": self.question,
            "score": self.scale._asdict(),
            "seeds": self.seeds,
            "cells": [
                {**cell, "colour": look(number).colour, "dash": look(number).dash}
                for number, cell in enumerate(self.cells)
            ],
            "report": (self.path / "report.html").is_file(),
        }


def _runs(study: Path) -> Iterator[tuple[str, Path]]:
    """The numbered folders of a study as <study>/<number>, and the study's folder if results are in it."""
    if (study / "study.json").is_file():
        yield f"{study.parent.name}/{study.name}" if number_of(study) else study.name, study
    for path in _folders(study):
        if number_of(path) and (path / "study.json").is_file():
            yield f"{study.name}/{path.name}", path


def _deployment(path: Path) -> dict[str, Any] | None:
    """The clients of the deployment that wrote this folder, the state of each, and what happened last."""
    try:
        state = state_of(path)
    except (OSError, ValueError, KeyError, TypeError):  # removed, or no log of FedTide
        return None
    if state is None:
        return None
    clients = [{"number": n, **asdict(each)} for n, each in sorted(state.clients.items())]
    return {"clients": clients, "waiting": sorted(state.waiting), "news": state.news[::-1]}


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it does not exist, or was removed
        return []
    return [root / name for name in sorted(names)]


def is_held(path: Path) -> bool:
    """Has a process locked this folder, as one that runs the study does? Known on Linux only."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    return any("FLOCK" in lock and lock.split()[-3].endswith(f":{inode}") for lock in locks)
