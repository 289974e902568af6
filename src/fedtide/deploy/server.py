"""What runs on the server: every run of a study, on the clients that are connected."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from fedtide import config
from fedtide.core.errors import EngineError, FedTideError, require
from fedtide.deploy.data import Hook, imported, of_server
from fedtide.deploy.engine import Deployed
from fedtide.deploy.events import Events
from fedtide.deploy.roster import Roster
from fedtide.deploy.up import MARK
from fedtide.deploy.warm import hasten_server
from fedtide.population.live import Live
from fedtide.record.archive import copy_archive
from fedtide.record.deployment import LOG
from fedtide.record.folder import StudyFolder
from fedtide.record.line import Progress
from fedtide.run.execute import run_study
from fedtide.run.experiment import Experiment
from fedtide.run.study import Cell, Study


def server_app(file: Path, hook: Hook | str) -> ServerApp:
    """The ServerApp of the study in this file; `hook` is the app's module `data.py`, or its name."""
    app = ServerApp()
    hasten_server()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        study, settings = config.load(file), context.run_config
        out, first = str(settings.get("out", "runs")), int(str(settings.get("clients", 0)))
        archive = str(settings.get("archive", ""))
        try:
            study, wait = going_on(study, archive), float(str(settings.get("wait", 0)))
            serve(study, grid, imported(hook), Path(out), first, archive, wait)
        except FedTideError as error:
            say(f"failed: {error}")
            raise

    return app


def going_on(study: Study, archive: str) -> Study:
    """The study, beginning with the models in the folder `archive` if it has any."""
    if not archive:
        return study
    runs = len(study.cells) * len(study.seeds)
    require(runs == 1, "archive", "of a study with one setting and one seed", f"{runs} runs")
    e = study.cells[0].experiment
    must = "of a study whose start keeps models, such as 'soup'"
    require(e.start.archives, "archive", must, type(e.start).__name__)
    if not Path(archive).is_dir():
        return study
    e = replace(e, start=replace(e.start, archive=archive))
    return replace(study, cells=(replace(study.cells[0], experiment=e),))


def serve(
    study: Study,
    grid: Grid,
    hook: Hook,
    out: Path,
    first: int = 0,
    archive: str = "",
    wait: float = 0.0,
) -> Path:
    """Run the study with the clients of this grid, once `first` of them are there or the wait is over.

    The wait for the first clients is `wait` seconds, or engine.flower.wait where that is longer.

    Afterwards the folder `archive`, if one is named, has the models of this run's sessions, too.
    """
    events = Events(out / study.name / LOG, say)
    events.note("server", pid=os.getpid(), study=study.name, host=gethostname())
    try:
        folder = _served(study, grid, hook, out, first, wait, events)
    except FedTideError as error:
        events.note("failed", why=str(error))
        raise
    if archive:
        copy_archive(next(folder.glob("cells/*/*/archive")), Path(archive))
    events.note("done", f"done: {folder}", folder=str(folder))
    return folder


def _served(
    study: Study, grid: Grid, hook: Hook, out: Path, first: int, wait: float, events: Events
) -> Path:
    crowd = max(_clients(cell.experiment, hook) for cell in study.cells)
    require(first <= crowd, "clients", f"at most {crowd}, the population of the study", first)
    roster = Roster(grid, study.cells[0].experiment.engine.flower, crowd, events)
    here = roster.gather(max(first, roster.settings.minimum), wait)
    if not len(here):
        raise _without_clients(roster, wait)
    events.say(f"clients {here.tolist()} are here")
    cells = tuple(
        Cell(cell.settings, deployed(number, cell.experiment, roster, hook))
        for number, cell in enumerate(study.cells)
    )
    before = {each.path for each in StudyFolder.all_of(out / study.name)}

    def watch(news: Progress) -> None:
        if news.line["t"] == 0:
            new = {each.path for each in StudyFolder.all_of(out / study.name)} - before
            events.note("begun", folder=max(path.name for path in new))
        seconds = round(sum(news.line["seconds"].values()), 3)
        events.note(
            "round", _words(study, news), t=news.line["t"], seed=news.seed, cell=news.cell,
            cohort=news.line["cohort"], population=news.line["population"], seconds=seconds,
        )  # fmt: skip

    return run_study(replace(study, cells=cells), out, 1, watch).folder.path


def _without_clients(roster: Roster, wait: float) -> EngineError:
    """Why the first round cannot begin."""
    if roster.problems:
        each = "; ".join(sorted(set(roster.problems.values())))
        return EngineError(
            f"deploy: a client must introduce itself before the first round. Got only errors: {each}. "
            "Correct what they name, data.py of the app for example, and run again."
        )
    return EngineError(
        "engine.flower.wait must be long enough for the first client to connect. Got "
        f"{max(wait, roster.settings.wait):g} seconds without one. Start the SuperNodes, then run again."
    )


def deployed(cell: int, e: Experiment, roster: Roster, hook: Hook) -> Experiment:
    """The experiment of a cell with real clients in place of simulated ones."""
    data, can_test, tests = e.data, True, e.engine.flower.tests
    if hook.OWN:
        data, can_test = of_server(hook, roster)
    by_clients = tests == "clients" or (tests == "auto" and not can_test)
    where, must = "engine.flower.tests", "'clients' or 'auto' where of_server() gives nothing"
    require(can_test or by_clients, where, must, tests)
    where, must = "evaluation.fairness", "false where clients test"
    require(not (by_clients and e.evaluation.fairness), where, must, True)
    whole = [score.name for score in e.task.scores if not score.is_mean]
    must = "means over examples, such as accuracy or loss, where clients test"
    require(not (by_clients and whole), "task.metrics", must, whole)
    engine = Deployed(
        device=e.engine.device,
        flower=e.engine.flower,
        roster=roster,
        cell=cell,
        tested_by_clients=by_clients,
    )
    population = e.population
    if isinstance(population, Live):
        population = replace(population, who=roster.present)
    return replace(e, data=data, engine=engine, population=population)


def say(words: str) -> None:
    """Print a line about the deployment."""
    Console(highlight=False).print(MARK + words, markup=False, soft_wrap=True)


def _clients(e: Experiment, hook: Hook) -> int:
    """How many clients may ever exist."""
    if hook.OWN:
        return sum(group.clients for group in e.population.groups(hook.CLASSES))
    return e.data.deal(e.population.groups, e.population.length, e.seed)[1].clients


def _words(study: Study, news: Progress) -> str:
    """A round in one line."""
    line: Mapping[str, Any] = news.line
    words = [f"{line['cohort']} of {line['population']} clients"]
    for word in ("arrived", "left"):
        if line.get(word, {}).get("clients"):
            words.append(f"{line[word].get('ids', line[word]['clients'])} {word}")
    words += [f"{line[word]} {word}" for word in ("lost", "late", "failed") if word in line]
    words += ["new start"] if "start" in line else []
    words += ["not defended"] if line.get("undefended") else []
    scale, score = study.scale, study.scale.value(line)
    words += [] if score is None else [f"{scale.name} {scale.text(score)}"]
    words += [f"epsilon {line['epsilon']:.3g}"] if "epsilon" in line else []
    words += [f"{sum(line['seconds'].values()):.1f} s"]
    return f"{news.label}, seed {news.seed}, round {line['t']}: {', '.join(words)}"
