"""Running and resuming a study: its runs one after the other, in processes or over Ray."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import ConfigError, require
from fedtide.core.kinds import expect
from fedtide.core.machine import cpu_count
from fedtide.engines.kinds import ray_needed, shared
from fedtide.measure.metrics import Metric
from fedtide.measure.results import Results
from fedtide.record.checkpoint import Checkpoints, Stopped
from fedtide.record.files import write_json
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import Journal, read
from fedtide.record.line import Line, Progress
from fedtide.record.model import write_model
from fedtide.record.settings import differences
from fedtide.run.loop import run
from fedtide.run.origin import Origin, origin, tied_here
from fedtide.run.preflight import preflight
from fedtide.run.processes import Stop, in_processes
from fedtide.run.reuse import NOTHING, Taken, is_extension, take_over
from fedtide.run.study import Run, Study, beginning, described
from fedtide.show.notebook import frame
from fedtide.show.progress import followed
from fedtide.show.trackers import Tracked, Tracking

if TYPE_CHECKING:
    from pandas import DataFrame

Watch = Callable[[Progress], None]
Task = tuple[Run, Path, int, Origin]  # the arguments of `run_one`

STARTING = 6.0  # seconds until other processes have loaded torch and compiled what they need
LONG = 20.0  # seconds of a first run, in which the time to warm up does not count
SHOWN = 8  # differences between two studies

HOW = "Write run_study(load('study.toml')) for a study file, run(experiment) for an experiment."

log = logging.getLogger("fedtide")


@dataclass(frozen=True)
class Outcome:
    """The folder and the results of a study; `folder, summary = run_study(...)` unpacks it."""

    folder: StudyFolder
    results: Results
    taken: Taken = NOTHING  # runs that earlier folders of the study had already

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        return self.results.summary()

    def __iter__(self) -> Iterator[Any]:
        yield from (self.folder, self.summary)

    def to_pandas(self) -> DataFrame:
        """One row per round of every run, with the run's settings and seed in front."""
        return frame(
            ({**row.settings, "seed": seed}, lines)
            for row in self.results.rows
            for seed, lines in row.runs.items()
        )


def run_study(
    study: Study,
    out: str | Path = "runs",
    jobs: int = 0,
    watch: Watch | None = None,
    resume: bool = False,
    stop: Stop = lambda: False,
    over_ray: bool = False,
    name: str = "",
    reuse: bool = True,
) -> Outcome:
    """Run every cell with every seed; results are the same for any number of `jobs` (0: by their length).

    Results go to a new folder, `out`/<study>/<number>, or <number>-<name>; earlier ones stay as they are.
    With `reuse`, runs that another folder of the study has already are taken from there. `over_ray`
    spreads the runs over a Ray cluster instead of over this machine's processes. `watch` receives every
    round; without it, a notebook shows how far the study has come.

    With `resume` the newest run with these settings goes on where it broke off, or is left as it is if it has
    ended. Where seeds, cells or rounds were added, a new folder begins with all that is there. Once `stop` is
    true every run ends after its round, keeps everything and raises `Stopped`.
    """
    expect(study, Study, "fedtide.run_study()", HOW)
    jobs = check_over_ray(study) if over_ray else allowed_jobs(study, jobs)
    if (before := resumable(study, out) if resume else None) and before.is_finished:
        return Outcome(before, Results.read(before))
    for caution in preflight(study.settings):
        log.warning(caution)
    others = StudyFolder.all_of(Path(out) / study.name) if reuse or resume else []
    folder = before or StudyFolder.begin(Path(out) / study.name, name)
    origins = [origin(run_.experiment, study.transition_rounds) for run_ in study.runs]
    total = sum(run_.experiment.population.length for run_ in study.runs)
    with folder.locked(), followed(watch, total, study.scale) as tell:
        taken = NOTHING if before else _begin(study, name, folder, others, origins)
        try:
            _finish(study, folder, origins, jobs, tell, stop, over_ray)
            return replace(conclude(folder), taken=taken)
        except Stopped as stopped:
            stopped.folder = folder.path
            raise


def _begin(
    study: Study,
    name: str,
    folder: StudyFolder,
    others: Sequence[StudyFolder],
    origins: Sequence[Origin],
) -> Taken:
    """Take over what other folders have already, and write what a new folder begins with."""
    taken = take_over(folder, others, list(zip(study.runs, origins, strict=True)))
    folder.write(beginning(study, name))
    return taken


def _finish(
    study: Study,
    folder: StudyFolder,
    origins: Sequence[Origin],
    jobs: int,
    watch: Watch,
    stop: Stop,
    over_ray: bool,
) -> None:
    """Run what has not ended yet."""
    engines = [cell.experiment.engine for cell in study.cells]
    tasks: Sequence[Task] = [
        (run_, folder.path, study.transition_rounds, made)
        for run_, made in zip(study.runs, origins, strict=True)
    ]
    with tracking(study, folder) as tracked:

        def tell(news: Progress) -> None:
            tracked.write((news.cell, news.seed), news.line)
            watch(news)

        if over_ray:
            _over_ray(study, folder, origins, tell, stop)
            return
        if jobs != 1:
            with shared(()):
                tasks = tasks if jobs else _while_short(tasks, tell, stop)
                jobs = min(jobs or cpu_count(), len(tasks))
                if jobs > 1:
                    in_processes(run_one, _with_workers(tasks, jobs), jobs, tell, stop)
                    return
        with shared(engines):
            for task in _with_workers(tasks, 1):
                run_one(*task, tell, stop)


def _while_short(tasks: Sequence[Task], tell: Watch, stop: Stop) -> Sequence[Task]:
    """Run tasks here, one after the other, until other processes would be faster; returns the rest.

    The first run warms up caches and compiled code: unless it is long, the time of the second one decides.
    """
    made = 0
    for place, task in enumerate(_with_workers(tasks, 1)):
        begun = monotonic()
        is_new = not _has_ended(task)
        made += is_new
        run_one(*task, tell, stop)
        seconds = monotonic() - begun
        rest = [later for later in tasks[place + 1 :] if not _has_ended(later)]
        known = is_new and (made > 1 or seconds > LONG)
        if known and pays(seconds, len(rest), cpu_count()):
            return tasks[place + 1 :]
    return []


def allowed_jobs(study: Study, jobs: int) -> int:
    """How many processes a study can have; 1 if `jobs` is 0 and others could not help."""
    if any(cell.experiment.engine.has_processes for cell in study.cells):
        return jobs or 1  # the actors are the processes
    tied = [name for cell in study.cells for name in tied_here(cell.experiment)]
    require(
        not tied or jobs < 2,
        "jobs",
        f"1 with {tied[0] if tied else ''}, which other processes cannot import: it is defined in a notebook "
        "or inside of a function",
        jobs,
        "Move it to a file beside this one and import it from there, or use over_ray=True.",
    )
    return 1 if tied else jobs


def pays(seconds: float, runs: int, cores: int) -> bool:
    """Are so many runs, of so many seconds each, faster in processes of their own than one by one?"""
    if min(runs, cores) < 2:
        return False
    side_by_side = math.ceil(runs / cores) * seconds
    return STARTING + side_by_side < runs * seconds


def _has_ended(task: Task) -> bool:
    run_, path, _, _ = task
    place = StudyFolder(path).run(run_.cell, run_.label, run_.experiment.seed)
    return (place / "run.json").exists()


def conclude(folder: StudyFolder) -> Outcome:
    """Write summary.json and the report of a study's folder."""
    from fedtide.show.report.page import write_report  # with charts and templates: slow to import

    outcome = Outcome(folder, Results.read(folder))
    write_json(folder.path / "summary.json", outcome.summary)
    write_report(folder, outcome.results)
    return outcome


def check_over_ray(study: Study) -> int:
    """Refuse what cannot be spread over Ray; returns the number of jobs, which the cluster chooses."""
    with ray_needed("--ray"):
        import_module("ray")
    spread = not any(cell.experiment.engine.has_processes for cell in study.cells)
    do = "Spread either the runs over the cluster or the clients of each."
    require(spread, "engine.kind", "another one than 'ray' with --ray", "ray", do)
    return 0


def _over_ray(
    study: Study, folder: StudyFolder, origins: Sequence[Origin], watch: Watch, stop: Stop
) -> list[dict[str, Metric]]:
    """Every run in a process of a Ray cluster, with as many CPUs as it has threads."""
    from fedtide.engines.ray.pool import ACTORS, connected
    from fedtide.run.cluster import Job, on_ray

    workers = max(cell.experiment.engine.workers or 1 for cell in study.cells)
    jobs = []
    for run_, made in zip(study.runs, origins, strict=True):
        place = folder.run(run_.cell, run_.label, run_.experiment.seed).relative_to(folder.path)
        task = (_threaded(run_, workers),), (study.transition_rounds, made)
        jobs.append(Job(*task, str(place)))
    with connected(max(cpu_count(), workers)):
        ACTORS.close()  # idle actors of an earlier run: their CPUs are needed
        return on_ray(run_one, jobs, folder.path, workers, watch, stop)


def resumable(study: Study, out: str | Path) -> StudyFolder | None:
    """The newest run of this study with these settings; None where it was never run, or where the study
    has all cells and seeds of an earlier run and more cells, seeds or rounds.

    Where all runs have other settings, nothing can go on: a `ConfigError` that shows what differs.
    """
    folders, settings = StudyFolder.all_of(Path(out) / study.name), described(study)
    found: list[str] = []
    known = [folder.read_json("settings.json") for folder in folders]
    for folder, before in zip(folders, known, strict=True):
        other = list(differences(before, settings))
        if not other:
            return folder
        found = found or other
    if not folders or any(is_extension(before, settings) for before in known):
        return None
    shown = "; ".join(found[:SHOWN]) + f"; and {len(found) - SHOWN} more" * (len(found) > SHOWN)
    raise ConfigError(
        "--resume: the study must be one that was run before with the same settings. Got others than "
        f"{folders[0].path} has: {shown}. Change them back, or run the study anew without --resume."
    )


def tracking(study: Study, folder: StudyFolder) -> Tracking:
    """The study's trackers, open and knowing every run that has not ended yet."""
    runs = {
        (number, seed): Tracked(
            study.name,
            cell.label,
            cell.settings,
            seed,
            cell.experiment.population.length,
            place,
        )
        for number, cell in enumerate(study.cells)
        for seed in study.seeds
        if not ((place := folder.run(number, cell.label, seed)) / "run.json").exists()
    }
    return Tracking(study.track, study.name, study.source, folder.path, runs)


def run_one(
    run_: Run, path: Path, transition_rounds: int, made: Origin, watch: Watch, stop: Stop
) -> dict[str, Metric]:
    """One run and its files, as far as they are not there already."""
    e = run_.experiment
    folder = StudyFolder(path).claim(run_.cell, run_.label, e.seed, made)
    keep = e.population.length - 1

    def tell(line: Line) -> None:
        watch(Progress(run_.label, e.seed, line, run_.cell))

    if (folder / "run.json").exists():
        Checkpoints(folder / "checkpoints", last=keep).conclude()  # of a run killed at its very end
        for line in read(folder / "journal.jsonl"):
            tell(line)
        return ended(folder)
    if stop():
        raise Stopped
    checkpoints = Checkpoints(folder / "checkpoints", e.checkpoint, stop, last=keep)
    journal = Journal(folder / "journal.jsonl", fresh=False)
    try:
        history = run(e, journal, tell, checkpoints)
    finally:
        journal.close()
    metrics = history.metrics(transition_rounds)
    about = {"study": run_.study, "setting": run_.label, **history.about_model()}
    write_model(folder / "model.safetensors", history.model, history.layout, about)
    if e.start.archives:
        history.save_archive(folder / "archive")
    write_json(folder / "run.json", {"metrics": metrics, "engine": history.engine})
    checkpoints.conclude()
    return metrics


def ended(folder: Path) -> dict[str, Metric]:
    """The metrics of a run that has ended."""
    metrics: dict[str, Metric] = StudyFolder(folder).read_json("run.json")["metrics"]
    return metrics


def _with_workers(tasks: Sequence[Task], jobs: int) -> list[Task]:
    """The tasks with as many threads each as `jobs` processes leave."""
    workers = max(1, cpu_count() // jobs)
    return [(_threaded(run_, workers), *rest) for run_, *rest in tasks]  # type: ignore[misc]


def _threaded(run_: Run, workers: int) -> Run:
    e = run_.experiment
    return run_._replace(experiment=replace(e, engine=e.engine.with_workers(workers)))
