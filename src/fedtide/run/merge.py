"""Folders of results become one: shards of a study, or seeds and cells that were run on other machines."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.errors import ConfigError
from fedtide.record.files import writing
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import Outcome, conclude

Cell = Mapping[str, Any]


class Part(NamedTuple):
    """One of the folders that are merged."""

    folder: StudyFolder
    about: Mapping[str, Any]  # study.json
    settings: Mapping[str, Any]  # settings.json

    @classmethod
    def read(cls, folder: StudyFolder) -> Part:
        return cls(folder, folder.read_json("study.json"), folder.read_json("settings.json"))


def merge(folders: Sequence[StudyFolder], out: Path, name: str = "") -> Outcome:
    """A new folder with all cells and seeds of these; the first one that has a finished run counts."""
    parts = [Part.read(folder) for folder in folders]
    first = parts[0]
    for part in parts[1:]:
        _check(first, part)
    cells = _cells(parts)
    seeds = list(dict.fromkeys(seed for part in parts for seed in part.about["seeds"]))
    target = StudyFolder.begin(out / str(first.about["study"]), name)
    with target.locked():
        for number, (listed, _) in enumerate(cells):
            for seed in seeds:
                _take(parts, target, number, listed["label"], seed)
        source = first.folder.path / "study.toml"
        text = source.read_text(encoding="utf-8") if source.exists() else ""
        merged = "".join(f"# merged from {part.folder.path}\n" for part in parts)
        settings = {k: v for k, v in first.settings.items() if k != "shard"}
        about = {k: v for k, v in first.about.items() if k != "shard"}
        is_tuned = (first.folder.path / "tuned.json").is_file()
        target.write(
            {
                "study.toml": text + merged,
                **({"tuned.json": first.folder.read_json("tuned.json")} if is_tuned else {}),
                "settings.json": settings | {"seeds": seeds, "cells": [cell for _, cell in cells]},
                "study.json": about
                | {"name": name, "seeds": seeds, "cells": [listed for listed, _ in cells]},
            }
        )
        return conclude(target)


def _check(first: Part, part: Part) -> None:
    """Refuse folders whose numbers mean different things."""
    for key in ("study", "transition_rounds"):
        if first.about[key] != part.about[key]:
            raise ConfigError(
                f"merge: {part.folder.path} must have the same {key} as {first.folder.path}. Got "
                f"{part.about[key]!r} and {first.about[key]!r}. To compare studies, use fedtide compare."
            )


def _cells(parts: Sequence[Part]) -> list[tuple[Cell, Cell]]:
    """Every cell once, as study.json and as settings.json describe it.

    A label with other settings in another folder is refused: the table could not tell them apart.
    """
    found: dict[str, tuple[Cell, Cell]] = {}
    for part in parts:
        for pair in zip(part.about["cells"], part.settings["cells"], strict=True):
            label = pair[0]["label"]
            if found.setdefault(label, pair)[1] != pair[1]:
                raise ConfigError(
                    f"merge: {label!r} must have the same settings in all folders. Got others in "
                    f"{part.folder.path}. To compare them, use fedtide compare."
                )
    return list(found.values())


def _take(parts: Sequence[Part], target: StudyFolder, cell: int, label: str, seed: int) -> None:
    """Copy a run from the first folder where it is finished, or else from the first where it began."""
    known = [
        (part.folder.run(number, label, seed))
        for part in parts
        for number, listed in enumerate(part.about["cells"])
        if listed["label"] == label
    ]
    begun = [path for path in known if (path / "identity.json").is_file()]
    source = next((path for path in begun if (path / "run.json").exists()), next(iter(begun), None))
    if source is None:
        return
    identity = StudyFolder(source).read_json("identity.json")
    place = target.claim(cell, label, seed, identity.get("origin"))
    with writing(place):
        shutil.copytree(
            source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("identity.json")
        )
