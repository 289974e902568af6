"""The command `fedtide tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.console import caution, console
from fedtide.cli.options import StudyFile
from fedtide.cli.run import Jobs, Name, Out, OverRay, Quiet, stoppable
from fedtide.core.errors import ConfigError

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
    """Search the ranges in a study's table [tune], and write the study with the best values."""
    if not quiet:  # at once: PyTorch takes seconds to load
        console.print(f"Reading {study} ...", highlight=False, soft_wrap=True)
    from rich.progress import Progress

    from fedtide import config
    from fedtide.measure.names import names
    from fedtide.measure.searched import searched
    from fedtide.record.files import write_text
    from fedtide.run.trial import TrialEnded
    from fedtide.run.tune import tune_study
    from fedtide.show.searched import chosen_table, trial_line

    plan = config.load(study)
    if plan.tuned:
        raise ConfigError(
            f"{study} must be a study whose values are not chosen yet. Got one with a table [tuned]. "
            "Remove [tuned] to search again, or run it: fedtide run."
        )
    labels = [cell.label for cell in plan.cells]
    named = dict(zip(labels, names([cell.settings for cell in plan.cells]), strict=True))
    total = len(labels) * plan.tune.most if plan.tune and plan.tune.most else None
    with stoppable() as stop, Progress(console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("trials", total=total)

        def watch(news: TrialEnded) -> None:
            bar.advance(task)
            if not quiet:
                text = trial_line(named[news.label], news.trial._asdict())
                console.print(text, markup=False, highlight=False, soft_wrap=True)

        done = tune_study(plan, out, jobs, watch, resume, stop, over_ray, name)
    found = searched(done.as_json())
    if found:
        console.print(chosen_table(found))
        caution(found.cautions)
    for file, text in config.tuned_files(f"{plan.name}-tuned", done).items():
        write_text(done.folder / file, text)
        write_text(study.parent / file, text)
    tuned = study.parent / f"{plan.name}-tuned.toml"
    console.print(f"All trials: {done.folder}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"Run the study with the chosen values, on the test set:\n  fedtide run {tuned}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
