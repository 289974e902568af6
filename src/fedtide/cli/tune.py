"""The command `fedtide tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.console import caution, console
from fedtide.cli.options import StudyFile
from fedtide.cli.run import Jobs, Name, Out, OverRay, Quiet, stoppable
from fedtide.core.errors import ConfigError

if TYPE_CHECKING:
    from fedtide.run.study import Study
    from fedtide.run.trial import TrialEnded
    from fedtide.run.tune import Tuned

Resume = Annotated[bool, typer.Option("--resume", help="Go on with the newest search.")]


def tune(
    study: StudyFile,
    out: Out = Path("runs"),
    jobs: Jobs = 0,
    quiet: Quiet = False,
    resume: Resume = False,
    over_ray: OverRay = False,
    name: Name = "",
) -> None:
    """Search the ranges that a study names under tune, and write the study with the best values."""
    if not quiet:  # at once: PyTorch takes seconds to load
        console.print(f"Reading {study} ...", highlight=False, soft_wrap=True)
    from fedtide import config
    from fedtide.run.tune import tune_study

    plan = config.load(study)
    if plan.tuned:
        raise ConfigError(
            f"{study} must be a study whose values are not chosen yet. Got one with a table [tuned]. "
            "Remove [tuned] to search again, or run it: fedtide run."
        )
    with stoppable() as stop, _progress(plan, quiet) as watch:
        done = tune_study(plan, out, jobs, watch, resume, stop, over_ray, name)
    _show(done, study.parent / f"{plan.name}-tuned.toml")


@contextmanager
def _progress(plan: Study, quiet: bool) -> Iterator[Callable[[TrialEnded], None]]:
    """A bar over all trials, and a line for each that has ended."""
    from rich.progress import Progress

    from fedtide.show.searched import trial_line

    named = plan.names
    most = plan.tune.most if plan.tune else 0
    with Progress(console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("trials", total=len(plan.cells) * most or None)

        def watch(news: TrialEnded) -> None:
            bar.advance(task)
            if not quiet:
                text = trial_line(named[news.label], news.trial._asdict(), plan.scale)
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        yield watch


def _show(done: Tuned, path: Path) -> None:
    """Print what was chosen, and write the tuned study and its history."""
    from fedtide import config
    from fedtide.measure.searched import searched
    from fedtide.record.files import write_text
    from fedtide.show.searched import chosen_table

    if found := searched(done.as_json()):
        console.print(chosen_table(found))
        caution(found.cautions)
    for file, text in config.tuned_files(path.stem, done).items():
        write_text(done.folder / file, text)
        write_text(path.parent / file, text)
    for line in (
        f"All trials: {done.folder}",
        f"Run the study with the chosen values, on the test set:\n  fedtide run {path}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
