"""Commands about several runs: `fedtide runs`, `compare` and `merge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.console import caution, console
from fedtide.cli.options import Json
from fedtide.core.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from fedtide.record.folder import StudyFolder

Folder = Annotated[
    Path, typer.Argument(help="A folder of results, or a study in it, e.g. runs/quickstart.")
]

Folders = Annotated[
    list[Path],
    typer.Argument(
        help="Folders of results, such as runs/tide/1 runs/tide/slow.", show_default=False
    ),
]


def runs(folder: Folder = Path("runs")) -> None:
    """List studies and their runs: how far each has come, and what differs between them."""
    from fedtide.measure.catalogue import studies
    from fedtide.record.folder import StudyFolder
    from fedtide.show.catalogue import runs_table, studies_table

    found = studies(folder)
    if not found:
        raise OutputError(
            f"{folder} must be a folder that 'fedtide run' wrote to. Got no study there. "
            "Run one, or name another folder."
        )
    if found == [folder] or len(found) == 1:
        console.print(
            f"{found[0].name}: {len(StudyFolder.all_of(found[0]))} runs, the newest first"
        )
        console.print(runs_table(found[0]), markup=False)
        return
    console.print(studies_table(found))
    console.print(f"Name a study for its runs: fedtide runs {found[0]}", soft_wrap=True)


def compare(folders: Folders, as_json: Json = False) -> None:
    """Compare folders of results: what differs in settings, versions, data and results."""
    from fedtide.measure.across import Across
    from fedtide.show.across import differences_table, headlines, results_tables

    found = Across.read(_at_least_two(folders, "compare"))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
        return
    for part in (differences_table(found), *results_tables(found)):
        console.print(part)
    for sentence in headlines(found):
        console.print(sentence, markup=False, highlight=False)


def merge(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("runs"),
    name: Annotated[str, typer.Option("--name", help="A name for the merged results.")] = "",
) -> None:
    """Merge folders of one study, such as its shards, into a new one."""
    from fedtide.run.merge import merge as merged
    from fedtide.show.report.tables import unfinished
    from fedtide.show.terminal import result_table

    outcome = merged(_at_least_two(folders, "merge"), out, name)
    console.print(result_table(outcome.results, console.width))
    caution(outcome.results.cautions)
    if missing := unfinished(outcome.results):
        caution([missing])
    console.print(f"Report: {outcome.folder.path / 'report.html'}", soft_wrap=True)


def _at_least_two(folders: list[Path], command: str) -> list[StudyFolder]:
    """The newest results in each of these folders."""
    from fedtide.record.folder import StudyFolder

    if len(folders) < 2:
        raise ConfigError(
            f"{command} must have at least two folders of results. Got {len(folders)}. "
            "Write two, such as runs/tide/1 runs/tide/2."
        )
    return [StudyFolder.newest(folder) for folder in folders]
