"""Commands that show results: `fedtide report`, `watch`, `figures` and `table`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedtide.cli.console import console, remark

if TYPE_CHECKING:
    from fedtide.measure.results import Results
    from fedtide.record.folder import StudyFolder

ResultFolder = Annotated[
    Path,
    typer.Argument(
        help="A study's folder, e.g. runs/quickstart (the newest run in it) or runs/quickstart/2."
    ),
]
FigureFormat = Annotated[
    Literal["pdf", "png", "svg"], typer.Option("--format", help="File format of the figures.")
]
Width = Annotated[
    Literal["column", "page"], typer.Option(help="As wide as a paper's column or page.")
]
TableFormat = Annotated[
    Literal["latex", "markdown", "csv"], typer.Option("--format", help="Format of the table.")
]

Compared = Annotated[
    Literal["none", "stars", "intervals"],
    typer.Option("--compared", help="Mark what is behind the best: by stars, or by intervals."),
]


Rho = Annotated[
    float | None,
    typer.Option(help="A run has recovered at this share of the best score; default: the study's."),
]
Reference = Annotated[
    str,
    typer.Option(
        metavar="KEY=VALUE", help="The row with which others are compared, such as start=previous."
    ),
]


Target = Annotated[
    float | None,
    typer.Option(help='The score of "rounds to 60 %", here 0.6; default: the study\'s.'),
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="A,B,...", help="The metrics that tables show, such as accuracy,rounds_to_target."
    ),
]


def report(
    folder: ResultFolder,
    rho: Rho = None,
    reference: Reference = "",
    target: Target = None,
    columns: Columns = "",
) -> None:
    """Write report.html anew from a study's journals."""
    from fedtide.show.report.page import write_report

    found = _newest(folder)
    results = _results(found, rho, reference, target, columns)
    console.print(f"Report: {write_report(found, results)}", soft_wrap=True)


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder that studies write to.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0: any free one.", min=0, max=65535)
    ] = 8420,
) -> None:
    """Follow running studies in a browser; read-only."""
    from fedtide.show.watch import serve

    def announce(address: str) -> None:
        console.print(f"Watching {folder} at {address} (Ctrl-C ends it).", markup=False)

    with suppress(KeyboardInterrupt):
        serve(folder, host, port, announce)


def figures(folder: ResultFolder, format_: FigureFormat = "pdf", width: Width = "column") -> None:
    """Write the report's charts as figures for a paper."""
    from fedtide.show.figures import write_figures

    for path in write_figures(_newest(folder), format_, width):
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def table(
    folder: ResultFolder,
    format_: TableFormat = "markdown",
    compared: Compared = "none",
    rounds: Annotated[
        bool, typer.Option("--rounds", help="Print every round of every run instead, as CSV.")
    ] = False,
    rho: Rho = None,
    reference: Reference = "",
    target: Target = None,
    columns: Columns = "",
) -> None:
    """Print the results as LaTeX, Markdown or CSV."""
    from fedtide.show.tables import rounds_csv
    from fedtide.show.tables import table as table_text

    found = _results(_newest(folder), rho, reference, target, columns)
    typer.echo(rounds_csv(found) if rounds else table_text(found, format_, compared), nl=False)


def _results(
    folder: StudyFolder, rho: float | None, reference: str, target: float | None, columns: str
) -> Results:
    """The results of a study, with another recovery, target or choice of columns where one is given."""
    from fedtide.config.load import assigned
    from fedtide.measure.results import Results
    from fedtide.measure.scale import scales
    from fedtide.measure.targets import check_target

    about = folder.read_json("study.json")
    given: dict[str, Any] = {} if rho is None else {"rho": rho}
    if reference:
        given["reference"] = dict([assigned(reference, "--reference")])
    instead: dict[str, Any] = {"recovery": {**about.get("recovery", {}), **given}}
    if target is not None:
        check_target(target, scales(about)[0])
        instead["target"] = target
    if columns:
        instead["columns"] = [name.strip() for name in columns.split(",")]
    return Results.read(folder, instead)


def _newest(folder: Path) -> StudyFolder:
    """The newest results in a folder; a remark says which ones, if they lie in a folder of their own."""
    from fedtide.record.folder import StudyFolder

    found = StudyFolder.newest(folder)
    if found.path != folder:
        remark(f"the newest results in {folder} are {found.path}")
    return found
