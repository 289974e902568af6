"""One trial of a search: the runs of an experiment with values that may be chosen, on validation examples."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from time import monotonic
from typing import Any, Literal, NamedTuple

from fedtide.core.errors import TrainingError
from fedtide.measure.metrics import costs, metrics
from fedtide.measure.scale import Scale
from fedtide.measure.windows import evaluated
from fedtide.record.checkpoint import Checkpoints, Stopped
from fedtide.record.files import write_json, writing
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import Journal
from fedtide.record.line import Line
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run

PARTS = 4  # of a run, after each of which a trial may be stopped
ENOUGH = 4  # earlier trials, with which one can be worse than most


class Trial(NamedTuple):
    """What a trial found."""

    number: int
    values: Mapping[str, Any]
    ended: Literal["finished", "pruned", "diverged"]
    # Mean over the seeds, negative where less is better; None unless the trial finished.
    score: float | None
    checks: Sequence[
        float | None
    ]  # scores after each quarter of each seed's run, as far as it came
    rounds: int
    updates: int  # uploads of clients
    seconds: float

    @classmethod
    def read(cls, folder: Path) -> Trial | None:
        """The trial of a folder; None if it has not ended."""
        if not (folder / "trial.json").is_file():
            return None
        found = StudyFolder(folder).read_json("trial.json")
        return cls(**{name: found[name] for name in cls._fields})


class TrialPlan(NamedTuple):
    """A trial that is to be made."""

    label: str  # of the setting of the grid
    number: int
    values: Mapping[str, Any]
    experiments: Sequence[Experiment]  # one for each seed
    bars: Sequence[float | None]  # below which the trial stops, for each check
    score: str
    transition_rounds: int
    place: str  # of its folder in that of the search
    made: Mapping[str, str]  # code, data and machine

    @property
    def scale(self) -> Scale:
        """The score of the task."""
        return self.experiments[0].scale


class TrialEnded(NamedTuple):
    """A trial that has ended."""

    label: str
    trial: Trial


class Worse(Exception):
    """The trial is worse than most of the earlier ones were at this point."""


class Checks:
    """Follows the runs of a trial round by round, and raises `Worse` at a bar that is not reached."""

    def __init__(self, job: TrialPlan) -> None:
        self._job = job
        self._past: list[Line] = []  # of runs with earlier seeds
        self._lines: list[Line] = []
        self._length = 1
        self.found: list[float | None] = []

    def begin(self, length: int) -> None:
        """A run of so many rounds begins."""
        self._past, self._lines, self._length = self.lines, [], length

    @property
    def lines(self) -> list[Line]:
        """The rounds of all seeds so far."""
        return self._past + self._lines

    def watch(self, line: Line) -> None:
        """Note a round; look at the score if a part of the run has ended."""
        self._lines.append(line)
        before = len(self.found) % PARTS
        part = PARTS * (line["t"] + 1) // self._length
        is_last = line["t"] + 1 == self._length
        if part > before and (is_last or self._job.scale.value(line) is not None):
            score = score_of(self._lines, self._job)
            self.found += [None] * (part - before - 1) + [score]
            self._check(len(self.found) - 1, score)

    def _check(self, place: int, score: float | None) -> None:
        bar = self._job.bars[place] if place < len(self._job.bars) else None
        if bar is not None and score is not None and score < bar:
            raise Worse


def score_of(lines: Sequence[Line], job: TrialPlan) -> float | None:
    """A trial's metric of the rounds so far, the mean over sessions if it has several; None without a test.

    It is negative where less is better.
    """
    scale = job.scale
    if not evaluated(lines, scale):
        return None
    found = metrics(lines, job.transition_rounds, scale)[job.score]
    if isinstance(found, list):
        return scale.sign * fmean(found) if found else None
    return scale.sign * found


def bars(trials: Sequence[Trial], checks: int) -> list[float | None]:
    """The median of earlier trials at every check but the last one, if enough of them came so far."""
    found: list[float | None] = []
    for place in range(checks - 1):
        known = [
            score
            for trial in trials
            if place < len(trial.checks) and (score := trial.checks[place]) is not None
        ]
        found.append(median(known) if len(known) >= ENOUGH else None)
    return found


def run_trial(
    job: TrialPlan, path: Path, watch: Callable[[TrialEnded], None], stop: Callable[[], bool]
) -> Trial:
    """Make a trial, as far as its folder does not have it already."""
    folder = path / job.place
    trial = Trial.read(folder)
    if trial is None:
        if stop():
            raise Stopped
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        trial = _made(job, folder, stop)
        write_json(folder / "trial.json", {**trial._asdict(), "made": dict(job.made)})
        for checkpoints in folder.glob("*/checkpoints"):
            shutil.rmtree(checkpoints, ignore_errors=True)
    watch(TrialEnded(job.label, trial))
    return trial


def _made(job: TrialPlan, folder: Path, stop: Callable[[], bool]) -> Trial:
    begun, checks, scores = monotonic(), Checks(job), []
    ended: Literal["finished", "pruned", "diverged"] = "finished"
    try:
        for e in job.experiments:
            checks.begin(e.population.length)
            scores.append(_score(job, e, folder / f"seed-{e.seed}", checks, stop))
    except Worse:
        ended = "pruned"
    except TrainingError:  # the loss grew without bound
        ended = "diverged"
    known = [score for score in scores if score is not None]
    lines = checks.lines
    return Trial(
        job.number,
        job.values,
        ended,
        fmean(known) if ended == "finished" and known else None,
        checks.found,
        len(lines),
        int(costs(lines)["uploads"]) if lines else 0,
        round(monotonic() - begun, 3),
    )


def _score(
    job: TrialPlan, e: Experiment, folder: Path, checks: Checks, stop: Callable[[], bool]
) -> float | None:
    """The final score of a trial's run with one seed."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
    journal = Journal(folder / "journal.jsonl", fresh=False)
    try:
        checkpoints = Checkpoints(folder / "checkpoints", e.checkpoint, stop)
        history = run(e, journal, checks.watch, checkpoints)
    finally:
        journal.close()
    return score_of(history.rounds, job)
