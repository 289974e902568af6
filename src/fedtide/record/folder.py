"""The folders of a study, one for every time it is run: which files they hold, and how they are read.

    <study>/<number>/         1, 2-<name>, 3 ...: existing ones are never overwritten or removed
        study.toml            the study as it was run
        study.json            its cells and seeds, versions and machine
        tuned.json            how its settings were chosen, if they were
        settings.json         every setting of every cell, defaults included
        cells/<number>-<cell>/seed-<n>/
            identity.json     cell and seed of this run; code, data and settings that made it
            journal.jsonl     one JSON line per round
            checkpoints/      the state of the run; of a finished one, that before its last round, if small
            model.safetensors the final model and what it is
            run.json          metrics of the run, its engine
        summary.json          means and standard deviations over the seeds, for other tools
        report.html           the same to look at

Every file but the journal is written under a temporary name and renamed, so no half-written file remains.
FedTide 0.1 put these files into <study>/ itself; such folders are read the same way.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.errors import OutputError
from fedtide.record.files import write_json, write_text, writing
from fedtide.record.journal import read
from fedtide.record.line import Line

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, flock


class CellRecord(NamedTuple):
    """One cell of a study's grid as its folder holds it."""

    settings: Mapping[str, Any]  # only what differs between cells
    label: str
    runs: Mapping[int, list[Line]]  # journal lines by seed
    ends: Mapping[int, Any]  # run.json by seed; only a finished run has one
    origins: Mapping[int, Mapping[str, Any]] = {}  # by seed: what made each run


class StudyFolder:
    """Reads and writes the folder of one time that a study was run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def begin(cls, study: Path, name: str = "") -> StudyFolder:
        """Make the next numbered folder in that of the study; no two processes get the same number."""
        try:
            study.mkdir(parents=True, exist_ok=True)
            number = max(map(number_of, _numbered(study)), default=0)
            while True:
                number += 1
                with suppress(FileExistsError):  # another process has just taken this number
                    path = study / str(number)
                    path.mkdir()
                    if [number_of(other) for other in _numbered(study)].count(number) > 1:
                        path.rmdir()  # another process has taken it under a name
                        continue
                    return cls(path.rename(study / f"{number}-{slug(name)}") if name else path)
        except OSError as error:
            raise OutputError(
                f"--out must be a folder that can be written. Got {study.parent} ({error.strerror}). "
                "Choose another with --out."
            ) from error

    @classmethod
    def all_of(cls, study: Path) -> list[StudyFolder]:
        """Every folder of a study, the newest first; last `study` itself, if results are in it."""
        found = [*cls.numbered(study), cls(study)]
        return [folder for folder in found if folder.exists]

    @classmethod
    def numbered(cls, place: Path) -> list[StudyFolder]:
        """The numbered folders at a place, the newest first."""
        return [cls(path) for path in sorted(_numbered(place), key=number_of, reverse=True)]

    @classmethod
    def newest(cls, path: Path) -> StudyFolder:
        """The newest results in a study's folder; `path` may also name one of its runs, or a study.json.

        A run is named by its number (tide/2), by its name (tide/slow), or by both (tide/2-slow).
        """
        if path.name == "study.json":
            return cls(path.parent)
        if not path.exists():
            for run in cls.all_of(path.parent):
                number, _, name = run.path.name.partition("-")
                if path.name in (number, name) or slug(path.name) == name:
                    return run
        return next(iter(cls.all_of(path)), cls(path))

    def write(self, files: Mapping[str, Any]) -> None:
        """Write these files, text or JSON, in this order."""
        for file, content in files.items():
            write = write_text if isinstance(content, str) else write_json
            write(self.path / file, content)

    @property
    def exists(self) -> bool:
        """Does the folder hold a study?"""
        return (self.path / "study.json").is_file()

    @property
    def is_finished(self) -> bool:
        """Has every run of the study ended?"""
        return all((self.path / file).is_file() for file in ("summary.json", "report.html"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes, where the system can."""
        if sys.platform == "win32":
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            flock(handle, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"{self.path} must belong to one process. Got another that runs this study now. "
                "Wait for it, or run the study anew without --resume."
            ) from error
        except OSError:
            return  # the file system has no locks

    def run(self, cell: int, label: str, seed: int) -> Path:
        """The folder of one run."""
        return self.path / "cells" / f"{cell + 1:02}-{slug(label)}" / f"seed-{seed}"

    def claim(
        self, cell: int, label: str, seed: int, origin: Mapping[str, Any] | None = None
    ) -> Path:
        """Make the folder of one run, or check that an existing one is of this cell and seed.

        `origin` says what makes the run. An unfinished one that something else began has no key any more:
        its results are no longer those of one version of code and data.
        """
        path, made = self.run(cell, label, seed), dict(origin or {})
        if (path / "identity.json").exists():
            before = _check_identity(path, cell, label, seed).get("origin", {})
            if (path / "run.json").exists() or before.get("key") == made.get("key") or not made:
                return path
            made |= {"key": "", "stem": "", "begun_by": before}
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        identity = _identity(cell, label, seed) | ({"origin": made} if made else {})
        write_json(path / "identity.json", identity)
        return path

    def journals(self) -> list[CellRecord]:
        """Read every cell with the journals of its finished and unfinished runs."""
        about = self.read_json("study.json")
        cells = []
        for number, cell in enumerate(about["cells"]):
            runs, ends, origins = {}, {}, {}
            for seed in about["seeds"]:
                path = self.run(number, cell["label"], seed)
                if (path / "identity.json").exists():  # folders of FedTide 0.1 have none
                    known = _check_identity(path, number, cell["label"], seed)
                    origins[seed] = known.get("origin", {})
                if (path / "journal.jsonl").exists() and (lines := read(path / "journal.jsonl")):
                    runs[seed] = lines
                if (path / "run.json").exists():
                    ends[seed] = json.loads((path / "run.json").read_text(encoding="utf-8"))
            cells.append(CellRecord(cell["settings"], cell["label"], runs, ends, origins))
        return cells

    def read_json(self, name: str) -> Any:
        """Read one of the folder's JSON files."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise OutputError(
                f"{self.path} must be the folder of a study. Got no readable {name} there. "
                "Name a folder that 'fedtide run' wrote, for example runs/quickstart."
            ) from error


def _identity(cell: int, label: str, seed: int) -> dict[str, Any]:
    return {"cell": cell + 1, "label": label, "seed": seed}


def _check_identity(path: Path, cell: int, label: str, seed: int) -> dict[str, Any]:
    """Refuse the files of another run, as when folders were moved by hand; returns identity.json."""
    must = _identity(cell, label, seed)
    found: dict[str, Any] = StudyFolder(path).read_json("identity.json")
    if {key: found.get(key) for key in must} != must:
        raise OutputError(
            f"{path} must hold the run of {_named(must)}. Got the run of {_named(found)}. "
            "Move the folder back, or run the study anew without --resume."
        )
    return found


def _named(identity: Mapping[str, Any]) -> str:
    return "cell {cell} ({label}), seed {seed}".format_map(identity)


def _numbered(study: Path) -> list[Path]:
    return [path for path in study.glob("[0-9]*") if number_of(path)]


def number_of(path: Path) -> int:
    """The number of a run's folder, such as 2 of `2` and of `2-slow`; 0 of other folders."""
    number, dash, name = path.name.partition("-")
    return int(number) if number.isdecimal() and bool(dash) == bool(name) else 0


def slug(label: str) -> str:
    """A label as part of a folder name: short, and valid on every file system."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower())[:60].strip("-.") or "all"


def labelled(settings: Mapping[str, Any]) -> str:
    """Settings in words: `start = similarity (R = 10), algorithm.mu = 0.1`."""
    return ", ".join(f"{key} = {word(value)}" for key, value in settings.items()) or "all"


def word(value: Any) -> str:
    """A setting's value in words."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{k} = {word(v)}" for k, v in value.items() if k != "kind")
        kind = str(value.get("kind", ""))
        return f"{kind} ({rest})" if kind and rest else kind or rest
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(word(item) for item in value) + "]"
    return str(value)
