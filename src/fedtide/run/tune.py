"""A search for settings: every setting of a study's grid gets the same budget of trials.

Trials are chosen in groups, each from the results of the groups before it. So a search makes the same
choices with any number of processes, and when it was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedtide.core.errors import ConfigError, TrainingError, needs
from fedtide.core.kinds import expect
from fedtide.measure.provenance import MADE
from fedtide.record.folder import StudyFolder, slug
from fedtide.record.settings import differences
from fedtide.run.crew import Crew
from fedtide.run.execute import allowed_jobs, check_over_ray
from fedtide.run.experiment import Experiment
from fedtide.run.origin import origin
from fedtide.run.preflight import preflight
from fedtide.run.processes import Stop
from fedtide.run.proposals import proposed
from fedtide.run.ranges import SHARE, Tune, as_json, changed_all, value_of
from fedtide.run.study import Cell, Study, described
from fedtide.run.trial import PARTS, Trial, TrialEnded, TrialPlan, bars

Watch = Callable[[TrialEnded], None]

PATIENCE = 3  # groups of trials after which one must have finished
SHOWN = 4  # differences between two searches


@dataclass
class Search:
    """The search for one setting of the grid."""

    study: Study
    number: int  # of the cell
    trials: list[Trial]

    @property
    def cell(self) -> Cell:
        return self.study.cells[self.number]

    @property
    def tune(self) -> Tune:
        """The study's [tune] section."""
        return self.study.tune or Tune()

    @property
    def best(self) -> Trial:
        """The finished trial with the highest score; of equal ones the first."""
        known = [trial for trial in self.trials if trial.score is not None]
        if not known:
            raise TrainingError(
                f"tune: a trial of {self.cell.label} must finish. Got {len(self.trials)} trials, none of "
                "which did. Use smaller learning rates, or a larger budget."
            )
        return max(known, key=lambda trial: trial.score or 0.0)

    @property
    def score(self) -> str:
        """The metric by which values are chosen: the one that a report begins with, unless it is given."""
        if self.tune.score:
            return self.tune.score
        e = self.cell.experiment
        changes = e.population.announced and len(list(e.sessions())) > 1
        return self.study.scale.metric("transition_" if changes else "")

    def next(self, made: Mapping[str, str]) -> Iterator[TrialPlan]:
        """The next group of trials; none if the budget is used up."""
        if len(self.trials) >= PATIENCE * self.tune.at_once:
            _ = self.best  # an error if none has finished
        limits = bars(self.trials, PARTS * len(seeds_of(self.study))) if self.tune.prune else []
        place = f"trials/{self.number + 1:02}-{slug(self.cell.label)}"
        for number, values in enumerate(self._values(self._room()), len(self.trials)):
            yield TrialPlan(
                self.cell.label,
                number,
                values,
                self.experiments(values),
                limits,
                self.score,
                self.study.transition_rounds,
                f"{place}/{number:03}",
                made,
            )

    def experiments(self, values: Mapping[str, Any]) -> list[Experiment]:
        """The experiment with these values, scored on validation examples, for every seed."""
        e = self.cell.experiment
        if not hasattr(e.data, "validation"):
            raise ConfigError(
                "fedtide tune must have data of which a part can be set apart for validation. Got "
                f"{type(e.data).__name__}. Use data.kind = 'dataset'."
            )
        share = e.data.validation or SHARE
        still = {
            "evaluation.on": "validation",
            "evaluation.probes": (),
            "evaluation.fairness": False,
        }
        stops = {"evaluation.diverged": "stop"}
        e = changed_all(e, {"data.validation": share, **still, **stops, **values})
        return [replace(e, seed=seed) for seed in seeds_of(self.study)]

    def _room(self) -> int:
        """How many trials the next group has."""
        if not self.cell.ranges:
            return 1 - len(self.trials)  # nothing to choose: one trial to compare with
        if self.tune.most:
            return min(self.tune.at_once, self.tune.most - len(self.trials))
        whole = max((trial.updates for trial in self.trials if trial.score is not None), default=0)
        spent = sum(trial.updates for trial in self.trials)
        left = (self.tune.updates - spent) // whole if whole else 1
        return max(0, min(self.tune.at_once, left))

    def _values(self, count: int) -> list[Mapping[str, Any]]:
        """Values for so many trials; the first trial has those of the study, if its ranges include them."""
        if not count:
            return []
        first, ranges = len(self.trials), self.cell.ranges
        own = {name: value_of(self.cell.experiment, name) for name in ranges}
        known = [own] if not first and all(r.holds(own[name]) for name, r in ranges.items()) else []
        places = range(first + len(known), first + count)
        return [*known, *proposed(ranges, self.trials, places, seeds_of(self.study)[0])]

    def as_json(self) -> dict[str, Any]:
        """One line of the search history."""
        return {
            "settings": dict(self.cell.settings),
            "ranges": {name: as_json(limits) for name, limits in self.cell.ranges.items()},
            "values": dict(self.best.values),
            "trials": [trial._asdict() for trial in self.trials],
        }


@dataclass(frozen=True)
class Tuned:
    """A search that has ended."""

    folder: Path
    searches: Sequence[Search]

    @property
    def searched(self) -> Study:
        """The study that was searched."""
        return self.searches[0].study

    @property
    def study(self) -> Study:
        """The study with the chosen values, ready to run; it is scored on the test set."""
        cells = [
            replace(one.cell, experiment=changed_all(one.cell.experiment, one.best.values))
            for one in self.searches
        ]
        name = f"{self.searched.name}-tuned"
        return replace(self.searched, name=name, cells=tuple(cells), tuned=self.as_json())

    def as_json(self) -> dict[str, Any]:
        """What was searched and found, as the folder of a tuned study records it."""
        return {
            "by": f"fedtide {version('fedtide')}, optuna {version('optuna')}",
            "budget": self.searches[0].tune.budget,
            "seed": list(seeds_of(self.searched)),
            "score": list(dict.fromkeys(one.score for one in self.searches)),
            "scale": self.searched.scale._asdict(),
            "cells": [one.as_json() for one in self.searches],
        }


def seeds_of(study: Study) -> Sequence[int]:
    """The seeds of every trial: those of [tune], else one that the study itself does not use."""
    return (study.tune and study.tune.seed) or (max(study.seeds) + 1,)


HOW = "Write tune_study(load('study.toml')) for a study file."


def tune_study(
    study: Study,
    out: str | Path = "runs",
    jobs: int = 0,
    watch: Watch = lambda news: None,
    resume: bool = False,
    stop: Stop = lambda: False,
    over_ray: bool = False,
    name: str = "",
) -> Tuned:
    """Search the ranges of a study; every setting of its grid gets the budget of `study.tune`.

    The trials are kept in `out`/<study>/tune/<number>. With `resume` the newest search with these settings
    goes on. `jobs` and `over_ray` are those of `run_study`; choices do not depend on them.
    """
    expect(study, Study, "fedtide.tune_study()", HOW)
    needs("fedtide tune", "tune", "optuna")
    searches = [Search(study, number, []) for number in range(len(study.cells))]
    if not any(cell.ranges for cell in study.cells):
        raise ConfigError(
            "[tune] must give the range of a setting. Got none. "
            "Write for example train.lr = { low = 0.001, high = 1, log = true }."
        )
    jobs = check_over_ray(study) if over_ray else allowed_jobs(study, jobs)
    preflight([(one.cell.label, one.experiments({})[0]) for one in searches])
    folder = _folder(study, Path(out) / study.name / "tune", resume, name)
    planned = len(searches) * (searches[0].tune.most or PATIENCE * searches[0].tune.at_once)
    known = origin(searches[0].experiments({})[0], study.transition_rounds)
    made = {part: str(known[part]) for part in MADE}
    with (
        folder.locked(),
        Crew(study, folder.path, jobs, planned, over_ray, watch, stop) as crew,
    ):
        while groups := [(one, job) for one in searches for job in one.next(made)]:
            trials = crew([job for _, job in groups])
            for (search, _), trial in zip(groups, trials, strict=True):
                search.trials.append(trial)
    return Tuned(folder.path, searches)


def _folder(study: Study, place: Path, resume: bool, name: str) -> StudyFolder:
    """The folder of a new search, or that of the newest one with the same settings."""
    about = {
        **described(study),
        "tune": {**as_json(study.tune or Tune()), "seed": list(seeds_of(study))},
        "ranges": [{n: as_json(r) for n, r in cell.ranges.items()} for cell in study.cells],
    }
    found: list[str] = []
    for folder in StudyFolder.numbered(place) if resume else ():
        if (folder.path / "tune.json").is_file():
            other = list(differences(folder.read_json("tune.json"), about))
            if not other:
                return folder
            found = found or other
    if found:
        raise ConfigError(
            "--resume: the study must be one that was searched before with the same settings. Got others: "
            f"{'; '.join(found[:SHOWN])}. Change them back, or search anew without --resume."
        )
    folder = StudyFolder.begin(place, name)
    folder.write({"study.toml": study.source, "tune.json": about})
    return folder
