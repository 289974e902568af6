"""Commands about several runs: `fedtide runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.console import console
from fedtide.core.errors import OutputError

Folder = Annotated[
    Path, typer.Argument(help="A folder of results, or a study in it, e.g. runs/quickstart.")
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
