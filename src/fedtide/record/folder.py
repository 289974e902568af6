"""The folder of a study: who writes which file, and how it is read again.

    study.toml            the study as it was run
    study.json            its cells and seeds, versions and machine
    settings.json         every setting of every cell, defaults included
    cells/<number>-<cell>/seed-<n>/
        journal.jsonl     one JSON line per round
        checkpoints/      everything that changes, until the run has ended
        model.safetensors the final model
        run.json          metrics of the run, its engine
    summary.json          means and spreads over the seeds: the file for other tools
    report.html           the same, to look at

Everything but the journal is written to a temporary name and renamed, so no half-written file remains.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save

from fedtide.core.errors import OutputError
from fedtide.core.task import Layout
from fedtide.core.types import Model
from fedtide.record.files import write_bytes, write_json, write_text
from fedtide.record.journal import Line, read

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, flock


class CellRecord(NamedTuple):
    """What a folder holds about one setting of the grid."""

    settings: Mapping[str, Any]  # only what differs between cells
    label: str
    runs: Mapping[int, list[Line]]  # journal lines by seed
    ends: Mapping[int, Any]  # run.json by seed; only a finished run has one


class StudyFolder:
    """Reads and writes one study's results."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, out: Path, name: str, files: Mapping[str, Any]) -> StudyFolder:
        """A fresh folder with these files, text or JSON, all of them or none.

        Results of an earlier run are kept beside it: as <name>.previous, or as <name>.unfinished, so that
        a run that broke off never takes the place of one that came to its end.
        """
        folder, fresh = cls(out / name), out / f".{name}.new"
        try:
            out.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(fresh, ignore_errors=True)  # of a run that was killed right here
            fresh.mkdir()
            for file, content in files.items():
                write = write_text if isinstance(content, str) else write_json
                write(fresh / file, content)
            folder._set_aside()
            fresh.rename(folder.path)
        except OSError as error:
            raise OutputError(
                f"--out must be a folder that can be written. Got {out} ({error.strerror}). "
                "Choose another with --out."
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return folder

    @property
    def exists(self) -> bool:
        """Is there a study?"""
        return (self.path / "study.json").is_file()

    @property
    def is_finished(self) -> bool:
        """Has every run of the study ended?"""
        return all((self.path / file).is_file() for file in ("summary.json", "report.html"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away from the folder, where the system can."""
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
                "Wait for it, or choose another --out."
            ) from error
        except OSError:
            return  # a file system without locks

    def _set_aside(self) -> None:
        """Make room for a new run."""
        if not self.path.exists():
            return
        if not self.exists:
            raise OutputError(
                f"--out: {self.path} must be a folder of FedTide results. Got something else. "
                "Move it away or choose another --out."
            )
        with self.locked():
            end = "previous" if self.is_finished else "unfinished"
            aside = self.path.with_name(f"{self.path.name}.{end}")
            shutil.rmtree(aside, ignore_errors=True)
            self.path.rename(aside)

    def run(self, cell: int, label: str, seed: int) -> Path:
        """Where one run's files are."""
        return self.path / "cells" / f"{cell + 1:02}-{slug(label)}" / f"seed-{seed}"

    def journals(self) -> list[CellRecord]:
        """Every cell with the journals of its finished and unfinished runs."""
        about = self.read_json("study.json")
        cells = []
        for number, cell in enumerate(about["cells"]):
            runs, ends = {}, {}
            for seed in about["seeds"]:
                path = self.run(number, cell["label"], seed)
                if (path / "journal.jsonl").exists() and (lines := read(path / "journal.jsonl")):
                    runs[seed] = lines
                if (path / "run.json").exists():
                    ends[seed] = json.loads((path / "run.json").read_text(encoding="utf-8"))
            cells.append(CellRecord(cell["settings"], cell["label"], runs, ends))
        return cells

    def read_json(self, name: str) -> Any:
        """One of the folder's JSON files."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise OutputError(
                f"{self.path} must be the folder of a study. Got no readable {name} there. "
                "Name a folder that 'fedtide run' wrote, for example runs/quickstart."
            ) from error


def slug(label: str) -> str:
    """A label as part of a folder name: readable, short, and safe on every file system."""
    return re.sub(r"[^a-z0-9.]+", "-", label.lower())[:60].strip("-.") or "all"


def write_model(path: Path, model: Model, layout: Layout) -> None:
    """The model by parameter name, as safetensors."""
    tensors = {**layout.unpack(model.x), **model.buffers}
    write_bytes(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}))


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
