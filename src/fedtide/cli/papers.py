"""The command `fedtide papers`: published numbers, and ours beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.console import console


def papers(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a paper's studies, or of several papers.")
    ] = Path("studies/papers"),
    take: Annotated[
        list[Path],
        typer.Option(help="Take our numbers from this folder of results; may be repeated."),
    ] = [],  # noqa: B006
    table: Annotated[
        str, typer.Option(help="List the numbers of this table, such as 'Table X'.")
    ] = "",
) -> None:
    """Show how many published numbers were run, and whether ours agree with them."""
    from fedtide.measure.ledger import read
    from fedtide.show.ledger import coverage, lines

    if take:
        _take(folder, take)
    ledgers = [read(one) for one in _papers(folder)]
    if table:
        for ledger in ledgers:
            for line in lines(ledger.tables.get(table, [])):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    console.print(coverage(ledgers))


def _papers(folder: Path) -> list[Path]:
    """The folders with published numbers: this one, or those in it."""
    from fedtide.core.errors import require
    from fedtide.measure.ledger import PUBLISHED

    found = sorted(
        file.parent for file in [*folder.glob(PUBLISHED), *folder.glob(f"*/{PUBLISHED}")]
    )
    must = f"a folder with {PUBLISHED} in it or in its folders"
    require(bool(found), "The folder", must, str(folder), "Name one, such as studies/papers.")
    return found


def _take(folder: Path, results: list[Path]) -> None:
    """Write what these results gave into ours.json of the paper that their study belongs to."""
    from fedtide.measure.ledger import OURS, taken
    from fedtide.record.files import write_json
    from fedtide.record.folder import StudyFolder

    for path in results:
        found = StudyFolder.newest(path)
        write_json(folder / OURS, taken(folder, found))
        console.print(f"Taken from {found.path}: {folder / OURS}", soft_wrap=True)
