"""Runs of a study that other folders of the same study have already: nothing is computed twice.

A finished run is taken over if settings, seed, FedTide's source, the user's files, data, torch and the kind
of processor are the same. A shorter one is continued, if nothing before its end depends on its length.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.data.stores import StaticStores
from fedtide.population.sessions import Population
from fedtide.record.checkpoint import Checkpoints
from fedtide.record.folder import StudyFolder
from fedtide.run.experiment import Experiment
from fedtide.run.origin import LENGTH, Origin, is_dirty
from fedtide.run.study import Run
from fedtide.training.schedules import Constant, Step


class Found(NamedTuple):
    """A run of another folder."""

    study: StudyFolder
    path: Path
    settings: Mapping[str, Any]  # every setting of its cell
    finished: bool


class Taken(NamedTuple):
    """How many runs came from other folders of the study."""

    whole: Mapping[Path, int]
    begun: Mapping[Path, int]  # shorter or unfinished ones, which were continued
    refused: int = 0  # runs that were computed again, because FedTide's own files had been edited

    @property
    def sentence(self) -> str:
        """For example: 6 runs were taken from runs/tide/1: same settings, code and data."""
        if self.refused:
            return (
                f"{self.refused} {_runs(self.refused)} not taken from earlier folders, because files of "
                "FedTide itself differ from their commit."
            )
        parts = [f"{n} {_runs(n)} taken from {path}" for path, n in self.whole.items()]
        parts += [f"{n} {_runs(n)} continued from {path}" for path, n in self.begun.items()]
        return f"{', '.join(parts)}: same settings, code and data." if parts else ""


NOTHING = Taken({}, {})


def is_extension(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Has the study all cells and seeds of an earlier one, with the same or more rounds?

    Both are the content of settings.json. The order of cells and seeds does not matter.
    """
    if before["transition_rounds"] != now["transition_rounds"]:
        return False
    if not set(before["seeds"]) <= set(now["seeds"]):
        return False
    return all(any(_is_longer(old, new) for new in now["cells"]) for old in before["cells"])


def _is_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    names = [key.rpartition(".")[2] for key in LENGTH]
    one, other = (dict(cell["population"]) for cell in (old, new))
    lengths = [(one.pop(name, 0), other.pop(name, 0)) for name in names]
    same = {**old, "population": one, "label": ""} == {**new, "population": other, "label": ""}
    return same and all(before <= now for before, now in lengths)


def _runs(count: int) -> str:
    return "run was" if count == 1 else "runs were"


def take_over(
    folder: StudyFolder, others: Sequence[StudyFolder], runs: Sequence[tuple[Run, Origin]]
) -> Taken:
    """Put the runs that others have into a new folder; nothing if FedTide's own files were edited.

    The files of finished runs are linked, not copied, where the file system can.
    """
    equal, alike = _index(others)
    whole: Counter[Path] = Counter()
    begun: Counter[Path] = Counter()
    found = [
        (run, made, source)
        for run, made in runs
        if (source := _source(equal.get(made["key"]), alike.get(made["stem"], []), run.experiment))
    ]
    if found and is_dirty():
        return NOTHING._replace(refused=len(found))
    for run, made, source in found:
        is_whole = source is equal.get(made["key"]) and source.finished
        place = folder.run(run.cell, run.label, run.experiment.seed)
        (_copy_whole if is_whole else _copy_begun)(source, place)
        folder.claim(run.cell, run.label, run.experiment.seed, made)
        (whole if is_whole else begun)[source.study.path] += 1
    return Taken(whole, begun)


def _source(equal: Found | None, alike: Sequence[Found], e: Experiment) -> Found | None:
    """Where to take a run from: an equal one, finished or with a checkpoint, or else a shorter one."""
    if equal and (equal.finished or Checkpoints(equal.path / "checkpoints").newest):
        return equal
    return _prefix(alike, e)


def _index(others: Sequence[StudyFolder]) -> tuple[dict[str, Found], dict[str, list[Found]]]:
    """The runs of other folders by their key, finished ones first, and by their stem, the newest first."""
    equal: dict[str, Found] = {}
    alike: dict[str, list[Found]] = {}
    for found, made in _all_runs(others):
        alike.setdefault(made["stem"], []).append(found)
        known = equal.get(made["key"])
        if known is None or (found.finished and not known.finished):
            equal[made["key"]] = found
    return equal, alike


def _all_runs(others: Sequence[StudyFolder]) -> Iterator[tuple[Found, Origin]]:
    for study in others:
        if not (study.path / "settings.json").is_file():
            continue
        cells = study.read_json("settings.json")["cells"]
        for file in sorted(study.path.glob("cells/*/seed-*/identity.json")):
            identity = StudyFolder(file.parent).read_json("identity.json")
            made, cell = identity.get("origin", {}), int(identity["cell"]) - 1
            if made.get("key") and cell < len(cells):
                finished = (file.parent / "run.json").exists()
                yield Found(study, file.parent, cells[cell], finished), made


def _prefix(found: Sequence[Found], e: Experiment) -> Found | None:
    """The longest of these shorter runs that the run can continue."""
    fits = [one for one in found if one.finished and _begins(one, e)]
    return max(fits, key=lambda one: _length(one, e.population).length, default=None)


def _begins(found: Found, e: Experiment) -> bool:
    """Is this run, up to its last round but one, the beginning of the longer run?"""
    before = _length(found, e.population)
    steady = isinstance(e.train.schedule, Constant | Step)
    static = isinstance(getattr(e.data, "stores", None), StaticStores)
    kept = Checkpoints(found.path / "checkpoints").newest == before.length - 1
    if not (steady and static and kept and before.length < e.population.length):
        return False
    return all(_same_session(before, e, t) for t in range(before.length))


def _length(found: Found, population: Population) -> Population:
    """The population of that run: the same with another number of rounds or sessions."""
    names = {key.rpartition(".")[2] for key in LENGTH} & {f.name for f in fields(population)}
    return replace(population, **{name: found.settings["population"][name] for name in names})


def _same_session(before: Population, e: Experiment, t: int) -> bool:
    one, other = before.at(t, e.seed), e.population.at(t, e.seed)
    return one.first == other.first and one.clients.tolist() == other.clients.tolist()


def _copy_whole(source: Found, place: Path) -> None:
    """Link the files of a finished run, which are never written again; run.json comes last."""
    _copy(source.path, place, link=True)
    _link(source.path / "run.json", place / "run.json")


def _copy_begun(source: Found, place: Path) -> None:
    """Copy journal and checkpoints of a run that goes on here."""
    _copy(source.path, place, link=False, leave={"model.safetensors"})


def _copy(source: Path, place: Path, link: bool, leave: set[str] | None = None) -> None:
    skip = {"run.json", "identity.json"} | (leave or set())
    for path in sorted(source.rglob("*")):  # a segment before the JSON that needs it
        inner = path.relative_to(source)
        if path.is_file() and not skip & set(inner.parts):
            (place / inner).parent.mkdir(parents=True, exist_ok=True)
            (_link if link else shutil.copyfile)(path, place / inner)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
