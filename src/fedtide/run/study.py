"""A study: a grid of cells, each an experiment that runs with several seeds."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import torch

from fedtide.core.errors import require
from fedtide.core.machine import cpu_count
from fedtide.measure.names import names
from fedtide.measure.problems import references, split
from fedtide.measure.recovery import Recovery
from fedtide.measure.scale import Scale
from fedtide.measure.targets import check_target
from fedtide.record.folder import labelled
from fedtide.record.settings import plain
from fedtide.run.experiment import Experiment
from fedtide.run.origin import NO_MATTER
from fedtide.run.ranges import Ranges, Tune
from fedtide.show.columns import check_columns
from fedtide.show.trackers import Tracker

MOST_LETTERS = 100  # of a study's name


@dataclass(frozen=True)
class Cell:
    """One setting of the grid: what differs from the other cells, and its experiment."""

    settings: Mapping[str, Any]
    experiment: Experiment
    ranges: Ranges = field(default_factory=dict)  # of the settings that `fedtide tune` chooses

    @property
    def label(self) -> str:
        return labelled(self.settings)


class Shard(NamedTuple):
    """Every `of`-th run of a study, from the one with this number on."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """The shard that `3/10` names."""
        number, _, of = text.partition("/")
        fits = number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
        require(fits, "--shard", "a part of a whole, such as 3/10 for the third of ten", text)
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, and the grid of experiments that answers it."""

    name: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    question: str = ""
    transition_rounds: int = 10
    recovery: Recovery = field(default_factory=Recovery)
    target: float | None = None  # the score of "rounds to 60 %"; None: one that every run reaches
    columns: tuple[str, ...] = ()  # metrics that tables show; empty: those that say something
    published: tuple[Mapping[str, Any], ...] = ()
    track: tuple[Tracker, ...] = ()
    source: str = ""  # the study file as it is run
    shard: Shard | None = None  # run only a part of all runs
    tune: Tune | None = None  # how `fedtide tune` searches
    tuned: Mapping[str, Any] | None = None  # what it has found: values, budget, history

    def __post_init__(self) -> None:
        plain = self.name.isprintable() and len(self.name) <= MOST_LETTERS
        inside = not self.name.startswith(".") and not set(self.name) & set("/\\:")
        must = f"a name for a folder: up to {MOST_LETTERS} letters, no slash, no dot in front"
        require(bool(self.name) and plain and inside, "The study's name", must, self.name)
        rounds = self.transition_rounds
        require(rounds >= 1, "transition_rounds", "at least 1", rounds)
        require(
            bool(self.cells), "case", "a list of at least one", "none", "Leave it out, or add one."
        )
        scores = list(dict.fromkeys(tuple(Scale.all_of(c.experiment.task)) for c in self.cells))
        require(
            len(scores) == 1,
            "task.metrics",
            "the same in all settings of a study, so that they can be compared",
            [[scale.name for scale in found] for found in scores],
        )
        check_target(self.target, self.scale)
        check_columns(self.columns, Scale.all_of(self.cells[0].experiment.task))
        grid = [cell.settings for cell in self.cells]
        references(split(grid, described(self)["cells"]), grid, self.recovery)
        distinct = len(set(self.seeds)) == len(self.seeds)
        require(distinct, "compare.seed", "without repetition", list(self.seeds))

    @property
    def scale(self) -> Scale:
        """The score by which models are judged."""
        return self.cells[0].experiment.scale

    @property
    def settings(self) -> list[tuple[str, Experiment]]:
        """Every cell by its name, with the first seed."""
        seed, named = self.seeds[0], self.names
        return [(named[cell.label], replace(cell.experiment, seed=seed)) for cell in self.cells]

    @property
    def names(self) -> dict[str, str]:
        """What each setting is called in sentences, by its label."""
        said = names([cell.settings for cell in self.cells])
        return {cell.label: name for cell, name in zip(self.cells, said, strict=True)}

    @property
    def runs(self) -> list[Run]:
        """Every run of the study, cells x seeds, or of its shard."""
        runs = [
            Run(number, cell.label, replace(cell.experiment, seed=seed), self.name)
            for number, cell in enumerate(self.cells)
            for seed in self.seeds
        ]
        return runs[self.shard.number - 1 :: self.shard.of] if self.shard else runs


class Run(NamedTuple):
    """One run of a study."""

    cell: int
    label: str
    experiment: Experiment
    study: str = ""


def described(study: Study) -> dict[str, Any]:
    """What settings.json says: all that decides the results."""
    cells = [{"label": cell.label, **plain(cell.experiment, NO_MATTER)} for cell in study.cells]
    shared = {"transition_rounds": study.transition_rounds, "seeds": list(study.seeds)}
    return {**shared, "cells": cells, **_part(study)}


def _part(study: Study) -> dict[str, str]:
    return {"shard": str(study.shard)} if study.shard else {}


def about(study: Study, name: str = "") -> dict[str, Any]:
    """What study.json says; `name` is that of this run of the study."""
    return {
        "format": 1,
        "study": study.name,
        "name": name,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "question": study.question,
        "transition_rounds": study.transition_rounds,
        "recovery": asdict(study.recovery),
        "target": study.target,
        "columns": list(study.columns),
        "seeds": list(study.seeds),
        "cells": [
            {
                "settings": dict(cell.settings),
                "label": cell.label,
                "rounds": cell.experiment.population.length,
            }
            for cell in study.cells
        ],
        "scores": [scale._asdict() for scale in Scale.all_of(study.cells[0].experiment.task)],
        **_part(study),
        "published": [dict(row) for row in study.published],
        "environment": {
            "fedtide": version("fedtide"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {cpu_count()} cores",
        },
    }


def beginning(study: Study, name: str = "") -> dict[str, Any]:
    """The files of a study that begins; study.json is the last, since a folder counts from then on."""
    return {
        "study.toml": study.source,
        **({"tuned.json": study.tuned} if study.tuned else {}),
        "settings.json": described(study),
        "study.json": about(study, name),
    }
