"""Commands that take a study file: `fedtide run`, `check` and `cost`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGTERM
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.console import caution, console, remark
from fedtide.cli.options import Changes, Json, Seeds, StudyFile

if TYPE_CHECKING:
    from fedtide.measure.results import Results
    from fedtide.run.execute import Outcome
    from fedtide.run.study import Study

Out = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Jobs = Annotated[
    int, typer.Option(help="How many runs at once; 0: one per core if runs are long.", min=0)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the results only, no progress.")]
Lines = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per round, and nothing else.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the newest run; seeds, cells and rounds may be added."),
]
OverRay = Annotated[
    bool,
    typer.Option(
        "--ray", help="Run on a Ray cluster: the one at RAY_ADDRESS, else one on this machine."
    ),
]
Name = Annotated[str, typer.Option("--name", help="A name for this run, beside its number.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Compute everything, also what earlier runs have already.")
]
Part = Annotated[
    str,
    typer.Option("--shard", metavar="I/N", help="Run the I-th of N parts; join them by merge."),
]
Profile = Annotated[
    bool, typer.Option("--profile", help="Show and save how long each part of a round took.")
]


def run(
    study: StudyFile,
    out: Out = Path("runs"),
    changes: Changes = [],  # noqa: B006 (typer copies it)
    seeds: Seeds = [],  # noqa: B006
    jobs: Jobs = 0,
    quiet: Quiet = False,
    as_json: Lines = False,
    resume: Resume = False,
    over_ray: OverRay = False,
    profile: Profile = False,
    name: Name = "",
    fresh: Fresh = False,
    shard: Part = "",
) -> None:
    """Run a study: every setting with every seed, then a table and a report."""
    if not (quiet or as_json):  # at once: PyTorch takes seconds to load
        console.print(f"Reading {study} ...", highlight=False, soft_wrap=True)
    from fedtide import config
    from fedtide.run.execute import resumable, run_study
    from fedtide.run.study import Shard
    from fedtide.show.terminal import LiveView

    plan = config.load(study, changes, seeds)
    if shard:
        plan = replace(plan, shard=Shard.read(shard))
        name = name or f"shard {shard.replace('/', ' of ')}"
    start = partial(
        run_study, plan, out, jobs, resume=resume, over_ray=over_ray, name=name, reuse=not fresh
    )
    if as_json:
        return _print_lines(plan, start)
    if resume and (before := resumable(plan, out)) and before.is_finished:
        console.print(f"{plan.name} is finished: nothing is left to do.", highlight=False)
    rounds = {(r.label, r.experiment.seed): r.experiment.population.length for r in plan.runs}
    _announce(plan, study, 0 if quiet else sum(rounds.values()))
    view = LiveView(plan.name, rounds, console, quiet, plan.names, plan.scale)
    with stoppable() as stop, view as live:
        outcome = start(watch=live.watch, stop=stop)
    _show(outcome, out / plan.name, profile)


def _print_lines(plan: Study, start: Callable[..., Outcome]) -> None:
    """Run a study and print its rounds as JSON objects."""
    from fedtide.show.jsonl import JsonLines

    lines = JsonLines(plan.name, [cell.settings for cell in plan.cells])
    with stoppable() as stop:
        start(watch=lines.watch, stop=stop)


def _announce(plan: Study, file: Path, rounds: int) -> None:
    """Print how many runs and rounds a study has, and what of it is not used."""
    if plan.tune and not plan.tuned:
        remark(f"the ranges in [tune] are not used here; fedtide tune {file} searches them")
    if rounds:
        runs = f"{len(plan.runs)} run{'s' * (len(plan.runs) != 1)}"
        console.print(f"{plan.name}: {runs}, {rounds:,} rounds in all", highlight=False)


def _show(outcome: Outcome, place: Path, profile: bool) -> None:
    """Print the results of a study, and where they are."""
    from fedtide.show.terminal import kept, pair_table, result_table, where_time_went

    folder, found = outcome.folder, outcome.results
    table, pairs = result_table(found, console.width), pair_table(found, console.width)
    console.print(table)
    if pairs is not None:
        if table.caption:
            console.print()
        console.print(pairs)
    answer(found)
    caution(found.cautions)
    if profile:
        console.print(where_time_went(folder))
    console.print(f"Report: {folder.path / 'report.html'}", soft_wrap=True)
    console.print(f"Numbers: {folder.path / 'summary.json'}", soft_wrap=True)
    console.print(kept(folder, place), markup=False, soft_wrap=True)
    if outcome.taken.sentence:
        console.print(outcome.taken.sentence, markup=False, highlight=False, soft_wrap=True)


def answer(found: Results) -> None:
    """Print the answer of a study, as its report does."""
    from fedtide.show.report.headline import headline

    for sentence in headline(found):
        lines = fill(sentence, console.width)  # leaves "83.2 %" whole, where rich would not
        console.print(lines, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or kill stop a study after a whole round, and print the command that continues it."""
    from fedtide.record.checkpoint import Stopped
    from fedtide.run.signals import Signals

    with Signals() as signals:
        try:
            yield signals.stop
        except Stopped as stopped:
            words = [word for word in sys.argv[1:] if word != "--resume"]
            command = shlex.join(["fedtide", *words, "--resume"])
            where = f" in {stopped.folder}" if stopped.folder else ""
            remark(
                f"stopped after a whole round; everything is kept{where}. Go on with:\n  {command}"
            )
            sys.exit(128 + (signals.number or SIGTERM))


def check(study: StudyFile, changes: Changes = [], seeds: Seeds = []) -> None:  # noqa: B006
    """Check a study as far as possible without running it, and say what it would run."""
    from fedtide import config
    from fedtide.run.preflight import foreseen

    plan = config.load(study, changes, seeds)
    for line in (*planned(plan), *data_lines(plan), *range_lines(plan)):
        console.print(line, markup=False, highlight=False)
    caution(foreseen(plan.settings))


def planned(study: Study) -> Iterator[str]:
    """What a study would run."""
    rounds = sum(run_.experiment.population.length for run_ in study.runs)
    counts = [(len(study.cells), "setting"), (len(study.seeds), "seed")]
    grid = " x ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counts)
    yield f"{study.name}: {grid}, {rounds:,} rounds in all."
    for name in study.names.values():
        yield f"  {name}"


def data_lines(study: Study) -> Iterator[str]:
    """Which data a study uses, and how to get those that are not here."""
    for name, data in {c.experiment.data.title: c.experiment.data for c in study.cells}.items():
        yield (
            f"Data: {name} is here" if data.is_here else f"Data: {name} is not here. {data.advice}"
        )


def range_lines(study: Study) -> Iterator[str]:
    """The ranges that `fedtide tune` would search; none of a study whose values are chosen."""
    from fedtide.run.ranges import in_words

    if study.tune and not study.tuned:
        yield f"Ranges for fedtide tune, {study.tune.budget} of each setting:"
        for cell in study.cells:
            for key, limits in cell.ranges.items():
                yield f"  {study.names[cell.label]}: {key} = {in_words(limits)}"


def cost(
    study: StudyFile,
    changes: Changes = [],  # noqa: B006
    seeds: Seeds = [],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Rounds to draw for every seed.", min=1)] = 100,
    as_json: Json = False,
) -> None:
    """Show what a round costs on the study's network, without training: seconds, joules, stragglers."""
    from fedtide import config
    from fedtide.network.plan import IdealNetwork
    from fedtide.run.cost import cost as cost_of
    from fedtide.show.terminal import costs, straggling

    plan = config.load(study, changes, seeds)
    free = [c.label for c in plan.cells if isinstance(c.experiment.network, IdealNetwork)]
    if len(free) == len(plan.cells) and not as_json:
        console.print(
            f"{plan.name}: there is nothing to price, because its network is ideal: no limits, no costs. "
            'Add a section such as\n\n[network]\nkind = "wireless"\n\nIts settings: '
            "fedtide list networks wireless",
            markup=False,
            highlight=False,
        )
        return
    prices = [cost_of(cell.experiment, plan.seeds, rounds) for cell in plan.cells]
    if as_json:
        cells = [
            {"settings": dict(cell.settings), **found}
            for cell, found in zip(plan.cells, prices, strict=True)
        ]
        typer.echo(json.dumps({"study": plan.name, "rounds": rounds, "cells": cells}, indent=2))
        return
    console.print(costs(plan.name, [cell.settings for cell in plan.cells], prices))
    for cell, found in zip(plan.cells, prices, strict=True):
        if found["straggle_share"]:
            text = f"Straggling, {plan.names[cell.label]}: {straggling(found)}"
            console.print(text, markup=False, highlight=False)
