"""Trials in this process, in other processes, or over Ray: whichever is asked for, or is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from fedtide.core.machine import cpu_count
from fedtide.engines.kinds import shared
from fedtide.run.execute import LONG, pays
from fedtide.run.processes import Stop, Workers, workers
from fedtide.run.study import Study
from fedtide.run.trial import Trial, TrialEnded, TrialPlan, run_trial


@dataclass
class Crew:
    """Makes groups of trials; with `jobs` 0 in other processes as soon as that is faster."""

    study: Study
    folder: Path
    jobs: int
    planned: int  # trials in all
    over_ray: bool
    watch: Callable[[TrialEnded], None]
    stop: Stop
    _made: int = 0
    _processes: Workers | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        engines = [cell.experiment.engine for cell in self.study.cells]
        self._threads = max(engine.workers or 1 for engine in engines)
        if self.over_ray:
            from fedtide.engines.ray.pool import ACTORS, connected

            self._stack.enter_context(connected(max(cpu_count(), self._threads)))
            ACTORS.close()  # idle actors of an earlier run: their CPUs are needed
        else:
            self._stack.enter_context(shared(engines if self.jobs == 1 else ()))
        if self.jobs > 1 and not self.over_ray:
            self._hire(self.jobs)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def __call__(self, group: Sequence[TrialPlan]) -> list[Trial]:
        """Make these trials, in order."""
        if self.over_ray:
            return self._over_ray(group)
        done: list[Trial] = []
        while self._processes is None and len(done) < len(group):
            done.append(self._one_here(group[len(done)]))
        rest = group[len(done) :]
        if self._processes is None or not rest:
            return done
        threads = max(1, cpu_count() // self.jobs)
        return done + self._processes(
            run_trial, [(_threaded(job, threads), self.folder) for job in rest]
        )

    def _one_here(self, job: TrialPlan) -> Trial:
        """Make a trial in this process, and start others if they would be faster from now on."""
        begun, is_new = monotonic(), Trial.read(self.folder / job.place) is None
        trial = run_trial(_threaded(job, cpu_count()), self.folder, self.watch, self.stop)
        seconds = monotonic() - begun
        self.planned -= 1
        self._made += is_new
        known = is_new and (self._made > 1 or seconds > LONG)
        if not self.jobs and known and pays(seconds, self.planned, cpu_count()):
            self._hire(min(cpu_count(), self.planned))
        return trial

    def _hire(self, jobs: int) -> None:
        self.jobs = jobs
        self._processes = self._stack.enter_context(workers(jobs, self.watch, self.stop))

    def _over_ray(self, group: Sequence[TrialPlan]) -> list[Trial]:
        from fedtide.run.cluster import Job as Remote
        from fedtide.run.cluster import on_ray

        jobs = [Remote((_threaded(job, self._threads),), (), job.place) for job in group]
        return on_ray(run_trial, jobs, self.folder, self._threads, self.watch, self.stop)


def _threaded(job: TrialPlan, threads: int) -> TrialPlan:
    experiments = [replace(e, engine=e.engine.with_workers(threads)) for e in job.experiments]
    return job._replace(experiments=experiments)
