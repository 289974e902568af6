"""The command `fedtide`."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedtide import __version__, config
from fedtide.core.errors import ConfigError, FedTideError, TrainingError, choices
from fedtide.data.datasets import DATASETS, load, place
from fedtide.deploy.commands import app as deploy
from fedtide.measure.results import results as read_results
from fedtide.record.checkpoint import Stopped
from fedtide.record.folder import StudyFolder
from fedtide.run.cost import price
from fedtide.run.kinds import ROOMS as KIND_ROOMS
from fedtide.run.kinds import kinds
from fedtide.run.preflight import foreseen
from fedtide.run.signals import Signals
from fedtide.run.study import Outcome, Study, Watch, resumable, run_study
from fedtide.show.export import rounds_csv
from fedtide.show.figures import Format as FigureFormat
from fedtide.show.figures import Width, write_figures
from fedtide.show.jsonl import JsonLines
from fedtide.show.report.page import write_report
from fedtide.show.tables import Format as TableFormat
from fedtide.show.tables import table as result_table
from fedtide.show.terminal import Live, costs, kept, results, straggling, where_time_went
from fedtide.show.watch import serve

app = typer.Typer(
    help="Federated learning for populations of clients that come and go.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(deploy, name="deploy")
console = Console()
ROOMS: dict[str, Mapping[str, Any]] = {
    "datasets": DATASETS,
    **{room: kinds(base) for room, base in KIND_ROOMS.items()},
}

StudyFile = Annotated[Path, typer.Argument(help="A study file (TOML).", show_default=False)]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. train.lr=0.1."),
]
Seeds = Annotated[list[int], typer.Option("--seed", help="Use these seeds instead of the study's.")]
ResultFolder = Annotated[
    Path,
    typer.Argument(
        help="A study's folder, e.g. runs/quickstart (the newest run in it) or runs/quickstart/2."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder for results.")]


@app.command()
def run(
    study: StudyFile,
    out: Out = Path("runs"),
    changes: Changes = [],  # noqa: B006 (typer copies it)
    seeds: Seeds = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(help="Runs in parallel; 0: one per core.", min=0)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per round, and nothing else.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest run that has these settings.")
    ] = False,
    over_ray: Annotated[
        bool, typer.Option("--ray", help="Spread the runs over Ray: RAY_ADDRESS, or here.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show and keep where the time went.")
    ] = False,
) -> None:
    """Run a study: every setting with every seed, then a table and a report."""
    plan = config.load(study, changes, seeds)
    if as_json:
        _run(plan, out, jobs, JsonLines(plan).watch, resume, over_ray)
        return
    if resume and (before := resumable(plan, out)) and before.is_finished:
        console.print(f"{plan.name} is finished: nothing is left to do.", highlight=False)
    with Live(plan, console, quiet) as live:
        folder, summary = _run(plan, out, jobs, live.watch, resume, over_ray)
    console.print(results(plan, summary))
    _caution(summary.get("cautions", ()))
    if profile:
        console.print(where_time_went(folder))
    console.print(f"Report: {folder.path / 'report.html'}", soft_wrap=True)
    console.print(f"Numbers: {folder.path / 'summary.json'}", soft_wrap=True)
    console.print(kept(folder, out / plan.name), markup=False, soft_wrap=True)


@app.command()
def check(study: StudyFile, changes: Changes = [], seeds: Seeds = []) -> None:  # noqa: B006
    """Validate a study file without running it."""
    plan = config.load(study, changes, seeds)
    rounds = sum(run_.experiment.population.length for run_ in plan.runs)
    console.print(
        f"{plan.name}: {len(plan.cells)} settings x {len(plan.seeds)} seeds, {rounds} rounds in all."
    )
    for cell in plan.cells:
        console.print(f"  {cell.label}", markup=False, highlight=False)
    for name, here in {
        c.experiment.data.title: c.experiment.data.is_here for c in plan.cells
    }.items():
        console.print(
            f"Data: {name} {'is here' if here else f'is not here: see fedtide data {name}'}"
        )
    _caution(foreseen(plan.settings))


@app.command()
def cost(
    study: StudyFile,
    changes: Changes = [],  # noqa: B006
    seeds: Seeds = [],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Rounds to draw for every seed.", min=1)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a round of a study costs on its network, without training: seconds, joules, stragglers."""
    plan = config.load(study, changes, seeds)
    prices = [price(cell.experiment, plan.seeds, rounds) for cell in plan.cells]
    if as_json:
        cells = [
            {"settings": dict(cell.settings), **found}
            for cell, found in zip(plan.cells, prices, strict=True)
        ]
        typer.echo(json.dumps({"study": plan.name, "rounds": rounds, "cells": cells}, indent=2))
        return
    console.print(costs(plan, prices))
    for cell, found in zip(plan.cells, prices, strict=True):
        if found["straggle_share"]:
            who = f"Straggling, {cell.label}: {straggling(found)}"
            console.print(who, markup=False, highlight=False)


@app.command("list")
def list_(
    room: Annotated[str, typer.Argument(help="What to list; nothing lists the rooms.")] = "",
) -> None:
    """List algorithms, datasets, models, partitions, participation, starts ..."""
    if not room:
        console.print("Say what to list: " + ", ".join(ROOMS))
        return
    if room not in ROOMS:
        raise ConfigError(f"list: {room!r} is not known. {choices(room, ROOMS)}")
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "what", "settings (default)"):
        table.add_column(column, overflow="fold")
    for kind, item in ROOMS[room].items():
        table.add_row(kind, _sentence(item), _settings(item))
    console.print(table)


@app.command()
def data(name: Annotated[str, typer.Argument(help="A dataset; nothing lists all.")] = "") -> None:
    """Show which datasets are here, or load one and describe it."""
    if name:
        dataset = load(name)
        console.print(
            f"{name}: {len(dataset.train):,} training and {len(dataset.test):,} test examples, "
            f"{dataset.classes} labels, inputs of shape {dataset.shape}."
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("dataset", "here", "what", "licence"):
        table.add_column(column, overflow="fold")
    for kind, info in DATASETS.items():
        here = "bundled" if not info.files else "yes" if place(kind) else "no"
        table.add_row(kind, here, info.description, info.licence)
    console.print(table)
    console.print("Set FEDTIDE_DATA to the folder that holds one folder per dataset.")


@app.command()
def report(
    folder: ResultFolder,
) -> None:
    """Write report.html anew from a study's journals."""
    console.print(f"Report: {write_report(_newest(folder))}", soft_wrap=True)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="Where studies are written.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any.", min=0, max=65535)] = 8420,
) -> None:
    """Follow running studies in a browser; read-only."""

    def announce(address: str) -> None:
        console.print(f"Watching {folder} at {address} (Ctrl-C ends it).", markup=False)

    with suppress(KeyboardInterrupt):
        serve(folder, host, port, announce)


@app.command()
def figures(
    folder: ResultFolder,
    format_: Annotated[FigureFormat, typer.Option("--format", help="Of the files.")] = "pdf",
    width: Annotated[Width, typer.Option(help="Of a paper's column or page.")] = "column",
) -> None:
    """Write the report's charts as figures for a paper."""
    for path in write_figures(_newest(folder), format_, width):
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)


@app.command()
def table(
    folder: ResultFolder,
    format_: Annotated[TableFormat, typer.Option("--format", help="Of the text.")] = "markdown",
    rounds: Annotated[
        bool, typer.Option("--rounds", help="Every round of every run instead, as CSV.")
    ] = False,
) -> None:
    """Print the results as LaTeX, Markdown or CSV."""
    found = read_results(_newest(folder))
    typer.echo(rounds_csv(found) if rounds else result_table(found, format_), nl=False)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Federated learning for populations of clients that come and go."""
    if version:
        console.print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command; an error on purpose is one sentence and exit code 2, or 1 if training broke down."""
    try:
        app()
    except Stopped as stopped:
        words = [word for word in sys.argv[1:] if word != "--resume"]
        how = shlex.join(["fedtide", *words, "--resume"])
        where = f" in {stopped.folder}" if stopped.folder else ""
        _say(f"stopped after a whole round; everything is kept{where}. Go on with:\n  {how}")
        sys.exit(128 + stopped.signal)
    except FedTideError as error:
        _say(str(error))
        sys.exit(1 if isinstance(error, TrainingError) else 2)


def _run(plan: Study, out: Path, jobs: int, watch: Watch, resume: bool, over_ray: bool) -> Outcome:
    """Run a study and listen for signals meanwhile."""
    with Signals() as signals:
        try:
            return run_study(plan, out, jobs, watch, resume, signals.stop, over_ray)
        except Stopped as stopped:
            raise Stopped(signals.number or SIGTERM, stopped.folder) from None


def _newest(folder: Path) -> StudyFolder:
    """The results that a folder stands for; says which, if there could be several."""
    found = StudyFolder.newest(folder)
    if found.path != folder:
        _say(f"the newest results in {folder} are {found.path}")
    return found


def _caution(sentences: Sequence[str]) -> None:
    """What a user must know beside the results."""
    for sentence in sentences:
        console.print(f"Caution: {sentence}", markup=False, highlight=False, soft_wrap=True)


def _say(text: str) -> None:
    Console(stderr=True).print(f"fedtide: {text}", markup=False, highlight=False, soft_wrap=True)


def _sentence(item: Any) -> str:
    """What a kind is, in a line."""
    if hasattr(item, "description"):
        return str(item.description)
    return (inspect.getdoc(item) or "").split("\n\n")[0].replace("\n", " ")


def _settings(item: Any) -> str:
    if not isinstance(item, type):
        return f"{item.classes} labels"
    return ", ".join(f"{name} = {value}" for name, value in config.settings(item).items())
