"""The folder of a study: who writes which file, and how it is read again.

    study.toml            the study as it was run
    study.json            its cells and seeds, versions and machine
    cells/<number>-<cell>/seed-<n>/
        journal.jsonl     one JSON line per round
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save

from fedtide.core.errors import OutputError
from fedtide.core.task import Layout
from fedtide.core.types import Model
from fedtide.record.journal import Line, read

FORMAT = 1


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
    def create(cls, out: Path, name: str) -> StudyFolder:
        """A fresh folder; results of an earlier run are kept beside it as <name>.previous."""
        path = out / name
        try:
            out.mkdir(parents=True, exist_ok=True)
            if path.exists():
                if not (path / "study.json").exists():
                    raise OutputError(
                        f"--out: {path} must be a folder of FedTide results. Got something else. "
                        "Move it away or choose another --out."
                    )
                previous = out / f"{name}.previous"
                shutil.rmtree(previous, ignore_errors=True)
                path.rename(previous)
            path.mkdir()
        except OSError as error:
            raise OutputError(
                f"--out must be a folder that can be written. Got {out} ({error.strerror}). "
                "Choose another with --out."
            ) from error
        return cls(path)

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


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none of it."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file or none of it."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_model(path: Path, model: Model, layout: Layout) -> None:
    """The model by parameter name, as safetensors."""
    tensors = {**layout.unpack(model.x), **model.buffers}
    write_bytes(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or none of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(
            f"{path} must be a file that can be written. Got: {error.strerror}. "
            "Free some space or choose another --out."
        ) from error


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
