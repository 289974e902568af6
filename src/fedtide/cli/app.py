"""The command `fedtide` with all its commands, and how errors end it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedtide import __version__
from fedtide.cli import fork, look, models, new, papers, results, run, runs, tune
from fedtide.cli.console import console, remark
from fedtide.core.errors import FedTideError, TrainingError
from fedtide.deploy.commands import app as deploy

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (
    new.new,
    run.run,
    run.check,
    run.cost,
    tune.tune,
    fork.fork,
    look.list_,
    look.data,
    look.schema,
    runs.runs,
    runs.compare,
    runs.merge,
    results.report,
    results.watch,
    results.figures,
    results.table,
    models.export,
    papers.papers,
):
    app.command(command.__name__.rstrip("_"))(command)
app.add_typer(deploy, name="deploy")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Federated learning for populations of clients that come and go."""
    if version:
        console.print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command. A FedTide error is printed in one sentence and ends it with exit code 2.

    The exit code is 1 if training broke down.
    """
    try:
        app()
    except FedTideError as error:
        remark(str(error))
        sys.exit(1 if isinstance(error, TrainingError) else 2)
