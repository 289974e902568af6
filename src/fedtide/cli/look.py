"""Commands that show what study files may contain: `fedtide list`, `data` and `schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedtide.cli.console import console
from fedtide.core.errors import ConfigError, choices


def list_(
    room: Annotated[
        str,
        typer.Argument(help="What to list, e.g. algorithms; without it, what there is to list."),
    ] = "",
    kind: Annotated[str, typer.Argument(help="One of them, to explain it, e.g. fedprox.")] = "",
) -> None:
    """List algorithms, datasets, models, partitions, starts ..., or explain one of them."""
    from fedtide.data.datasets import DATASETS
    from fedtide.run.kinds import ROOMS
    from fedtide.show.kinds import first_sentence

    rooms = ["datasets", *ROOMS]
    if not room:
        console.print("Say what to list: " + ", ".join(rooms))
        return
    if room not in rooms:
        raise ConfigError(f"list: {room!r} is not known. {choices(room, rooms)}")
    if kind:
        _explain(room, kind)
        return
    if room == "datasets":
        table = _table("dataset", "what", "labels")
        for name, info in DATASETS.items():
            table.add_row(name, info.description, str(info.classes))
    else:
        table = _table("kind", "what", "settings (default)")
        for name, found in ROOMS[room].items():
            table.add_row(name, escape(first_sentence(found)), escape(_settings(found)))
    console.print(table)


def data(
    name: Annotated[
        str,
        typer.Argument(help="A dataset, or a trace of visits (CSV, Parquet); else all datasets."),
    ] = "",
    round_minutes: Annotated[
        float, typer.Option(help="Of a trace: the length of a round; 0: times are rounds.", min=0)
    ] = 0.0,
    columns: Annotated[
        str,
        typer.Option(help="Of a trace: its columns for client, arrive, leave (or client, seen)."),
    ] = "client,arrive,leave",
    picture: Annotated[
        Path | None, typer.Option(help="Of a trace: draw who is present when into this file.")
    ] = None,
) -> None:
    """Show which datasets are here, describe one, or describe a trace of visits before it is used."""
    if name.endswith((".csv", ".csv.gz", ".parquet")):
        _describe_trace(name, round_minutes, columns, picture)
        return
    from fedtide.data.datasets import DATASETS, load, place

    if name:
        dataset = load(name)
        console.print(
            f"{name}: {len(dataset.train):,} training and {len(dataset.test):,} test examples, "
            f"{dataset.classes} labels, inputs of shape {dataset.shape}."
        )
        return
    table = _table("dataset", "here", "what", "licence")
    for kind, info in DATASETS.items():
        here = "bundled" if not info.files else "yes" if place(kind) else "no"
        table.add_row(kind, here, info.description, info.licence)
    console.print(table)
    console.print("Set FEDTIDE_DATA to the folder that holds one folder per dataset.")


def _describe_trace(file: str, round_minutes: float, columns: str, picture: Path | None) -> None:
    """Print numbers about a trace and how a study uses it; draw it if asked to."""
    from fedtide.population.arrivals import VisitTrace
    from fedtide.show import trace as show

    names = tuple(column.strip() for column in columns.split(","))
    trace = VisitTrace(file=file, round_minutes=round_minutes, columns=names)
    table = _table("", "")
    table.show_header = False
    for what, value in show.facts(trace):
        table.add_row(what, escape(value))
    console.print(table)
    rounds = next(value for what, value in show.facts(trace) if what == "rounds").split(" ")[0]
    settings = [f'kind = "trace", file = "{file}", rounds = {rounds.replace(",", "")}']
    settings += [f"round_minutes = {round_minutes:g}"] * bool(round_minutes)
    settings += [f"columns = {json.dumps(names)}"] * (names != VisitTrace.columns)
    console.print(
        f"In a study: population = {{ {', '.join(settings)} }}", markup=False, soft_wrap=True
    )
    if picture:
        show.picture(trace, picture)
        console.print(f"Picture: {picture}", soft_wrap=True)


def schema() -> None:
    """Print the JSON Schema of study files, with which editors complete and check them."""
    from fedtide.config.schema import study_schema

    typer.echo(json.dumps(study_schema(), indent=2))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _explain(room: str, kind: str) -> None:
    """Print everything about one kind, or load and describe a dataset."""
    from fedtide import config
    from fedtide.run.kinds import KINDS, ROOMS
    from fedtide.show.kinds import explained

    if room == "datasets":
        data(kind)
        return
    if kind not in ROOMS[room]:
        raise ConfigError(f"list {room}: {kind!r} is not known. {choices(kind, ROOMS[room])}")
    found = ROOMS[room][kind]
    for style, text in explained(room, kind, found, config.settings(found), KINDS):
        console.print(text, style=style or None, markup=False, highlight=False)


def _settings(kind: type) -> str:
    from fedtide import config

    settings: dict[str, Any] = config.settings(kind)
    return ", ".join(f"{name} = {value}" for name, value in settings.items())
