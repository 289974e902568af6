"""Many runs: a grid of cells, each with several seeds, one after the other or in parallel processes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fedtide.core.errors import EngineError, require
from fedtide.engines.choose import cpu_count, shared
from fedtide.engines.house import House
from fedtide.experiment import Experiment, run
from fedtide.record.folder import StudyFolder, labelled, write_json, write_model, write_text
from fedtide.record.journal import Journal, Line
from fedtide.record.metrics import Metric
from fedtide.record.notebook import frame
from fedtide.record.report import write_report
from fedtide.record.summary import beside_first, summarised
from fedtide.record.trackers import Tracked, Tracker
from fedtide.record.tracking import Tracking

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Cell:
    """One setting of the grid: what differs from the other cells, and its experiment."""

    settings: Mapping[str, Any]
    experiment: Experiment

    @property
    def label(self) -> str:
        return labelled(self.settings)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A question, and the grid of experiments that answers it."""

    name: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    question: str = ""
    transition_rounds: int = 10
    published: tuple[Mapping[str, Any], ...] = ()
    track: tuple[Tracker, ...] = ()
    source: str = ""  # the study file as it is run

    def __post_init__(self) -> None:
        rounds = self.transition_rounds
        require(rounds >= 1, "transition_rounds", "at least 1", rounds)
        distinct = len(set(self.seeds)) == len(self.seeds)
        require(distinct, "compare.seed", "without repetition", list(self.seeds))

    @property
    def runs(self) -> list[Run]:
        """Every run of the study: cells x seeds."""
        return [
            Run(number, cell.label, replace(cell.experiment, seed=seed))
            for number, cell in enumerate(self.cells)
            for seed in self.seeds
        ]


class Run(NamedTuple):
    """One run of a study."""

    cell: int
    label: str
    experiment: Experiment


class Progress(NamedTuple):
    """News from a run."""

    label: str
    seed: int
    line: Line
    cell: int = 0  # the run's, by number


Watch = Callable[[Progress], None]


class Outcome(NamedTuple):
    """What came of a study: its folder and what summary.json says."""

    folder: StudyFolder
    summary: dict[str, Any]

    def to_pandas(self) -> DataFrame:
        """One row per round of every run, with the run's settings and seed in front."""
        return frame(
            ({**cell.settings, "seed": seed}, lines)
            for cell in self.folder.journals()
            for seed, lines in cell.runs.items()
        )


def run_study(
    study: Study, out: str | Path = "runs", jobs: int = 0, watch: Watch = lambda news: None
) -> Outcome:
    """Run every cell with every seed; results are the same for any number of `jobs` (0: one per core)."""
    preflight(study)
    folder = StudyFolder.create(Path(out), study.name)
    write_text(folder.path / "study.toml", study.source)
    write_json(folder.path / "study.json", about(study))
    runs, cores = study.runs, cpu_count()
    engines = [cell.experiment.engine for cell in study.cells]
    if any(engine.kind == "ray" for engine in engines):
        jobs = jobs or 1  # the actors are the processes
    jobs = min(jobs or cores, len(runs))
    workers = max(1, cores // jobs)
    tasks = [(_with_workers(run_, workers), folder.path, study.transition_rounds) for run_ in runs]
    alone = jobs == 1
    with tracking(study, folder) as tracked, shared(engines if alone else ()):

        def tell(news: Progress) -> None:
            tracked.write((news.cell, news.seed), news.line)
            watch(news)

        results = [run_one(*t, tell) for t in tasks] if alone else _in_processes(tasks, jobs, tell)
    beside = beside_first([cell.runs for cell in folder.journals()])
    cells = [
        (
            cell.settings,
            [
                {**m, **beside[number][r.experiment.seed]}
                for r, m in zip(runs, results, strict=True)
                if r.cell == number
            ],
        )
        for number, cell in enumerate(study.cells)
    ]
    summary = summarised(study.name, cells)
    write_json(folder.path / "summary.json", summary)
    write_report(folder)
    return Outcome(folder, summary)


def tracking(study: Study, folder: StudyFolder) -> Tracking:
    """The study's trackers, open and knowing every run."""
    runs = {
        (number, seed): Tracked(
            study.name,
            cell.label,
            cell.settings,
            seed,
            cell.experiment.population.length,
            folder.run(number, cell.label, seed),
        )
        for number, cell in enumerate(study.cells)
        for seed in study.seeds
    }
    return Tracking(study.track, study.name, study.source, folder.path, runs)


def preflight(study: Study) -> None:
    """Load the data and build the models once, so that mistakes show before anything is written."""
    seen: list[Any] = []
    for cell in study.cells:
        e = replace(cell.experiment, seed=study.seeds[0])
        parts = (e.data, e.population, e.train, e.engine)
        if (*parts, e.participation) not in seen:
            seen.append((*parts, e.participation))
            with House.furnish(*parts, e.seed) as house:
                rehearse_participation(e, house)


def rehearse_participation(e: Experiment, house: House) -> None:
    """Check the participation of every session, and draw the first cohort."""
    t = 0
    while t < e.population.length:
        session = e.population.at(t, e.seed)
        e.participation.check_session(session)
        t = session.first + session.rounds
    who = e.participation.start(house.crowd, e.seed)
    e.participation.take(who, 0, e.population.at(0, e.seed), e.seed)


def run_one(run_: Run, path: Path, transition_rounds: int, watch: Watch) -> dict[str, Metric]:
    """One run and its files."""
    e = run_.experiment
    folder = StudyFolder(path).run(run_.cell, run_.label, e.seed)
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl")
    try:
        label, cell = run_.label, run_.cell
        history = run(e, journal, lambda line: watch(Progress(label, e.seed, line, cell)))
    finally:
        journal.close()
    metrics = history.metrics(transition_rounds)
    write_model(folder / "model.safetensors", history.model, history.layout)
    write_json(folder / "run.json", {"metrics": metrics, "engine": history.engine})
    return metrics


def about(study: Study) -> dict[str, Any]:
    """What study.json says."""
    return {
        "format": 1,
        "study": study.name,
        "question": study.question,
        "transition_rounds": study.transition_rounds,
        "seeds": list(study.seeds),
        "cells": [
            {
                "settings": dict(cell.settings),
                "label": cell.label,
                "rounds": cell.experiment.population.length,
            }
            for cell in study.cells
        ],
        "published": [dict(row) for row in study.published],
        "environment": {
            "fedtide": version("fedtide"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {cpu_count()} cores",
        },
    }


def _with_workers(run_: Run, workers: int) -> Run:
    e = run_.experiment
    if e.engine.kind == "ray":
        return run_
    engine = replace(e.engine, workers=e.engine.workers or workers)
    return run_._replace(experiment=replace(e, engine=engine))


class _Office(NamedTuple):
    """How a worker process speaks with the one that started it."""

    news: SimpleQueue[Progress | None]
    stop: Event  # set when another run has failed


_office: _Office | None = None  # set in a worker process


def _open_office(office: _Office) -> None:
    global _office
    _office = office


def _work(task: tuple[Run, Path, int]) -> dict[str, Metric] | None:
    """One run in a worker process; None if it stopped because another one failed."""
    assert _office is not None
    news, stop = _office

    def tell(progress: Progress) -> None:
        if stop.is_set():
            raise _Stopped
        news.put(progress)

    try:
        return run_one(*task, tell)
    except _Stopped:
        return None


class _Stopped(Exception):
    """Another run has failed."""


def _in_processes(
    tasks: list[tuple[Run, Path, int]], jobs: int, watch: Watch
) -> list[dict[str, Metric]]:
    """The same work in parallel processes; their news reach `watch` from a thread."""
    context = get_context("spawn")
    office = _Office(context.SimpleQueue(), context.Event())

    problems: list[Exception] = []  # of `watch`: whoever does not listen must not make workers wait

    def listen() -> None:
        for progress in iter(office.news.get, None):
            try:
                watch(progress)
            except Exception as error:
                problems.append(error)
                office.stop.set()

    listener = Thread(target=listen, daemon=True)
    listener.start()
    try:
        with ProcessPoolExecutor(
            jobs, context, initializer=_open_office, initargs=(office,)
        ) as pool:
            futures = [pool.submit(_work, task) for task in tasks]
            done, rest = wait(futures, return_when=FIRST_EXCEPTION)
            if rest:  # one has failed: the others stop after their round
                office.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                next(future for future in done if future.exception()).result()
            return [metrics for future in futures if (metrics := future.result()) is not None]
    except BrokenProcessPool as error:
        raise EngineError(
            f"--jobs must be few enough for this machine's memory. Got {jobs}, and one of them died. "
            "Try --jobs 1."
        ) from error
    finally:
        office.news.put(None)
        listener.join()
        if problems:
            raise problems[0]
