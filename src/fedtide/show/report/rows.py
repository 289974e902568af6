"""The rows of a study's results as charts show them: each setting with its look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedtide.measure.names import names
from fedtide.measure.results import ResultRow, ranked
from fedtide.record.line import Line
from fedtide.show.report.colours import PALETTE, Look, look

Figure = dict[str, Any]  # a figure of Plotly, or a part of one

MANY = 8  # settings; with more, a chart shows the best ones until the legend adds others


@dataclass(frozen=True)
class ChartRow(ResultRow):
    """A setting with the look that it has in every chart, table and legend."""

    look: Look
    name: str  # as in sentences, see `Results.name`


def chart_rows(rows: Sequence[ResultRow]) -> list[ChartRow]:
    """Rows with their looks; if there are more rows than colours, the best ones get solid lines."""
    places = {row.number: row.number for row in rows}
    if len(rows) > len(PALETTE):
        places = {row.number: place for place, row in enumerate(ranked(rows))}
    return [
        ChartRow(
            row.number,
            row.label,
            row.settings,
            row.runs,
            row.finished,
            row.metrics,
            look(places[row.number]),
            name,
            windows=row.windows,
            scale=row.scale,
        )
        for row, name in zip(rows, names([row.settings for row in rows]), strict=True)
    ]


def shown(rows: Sequence[ResultRow]) -> set[int]:
    """The numbers of the rows that charts show at first: all, or the best of many."""
    return {row.number for row in ranked(rows)[:MANY]}


def of_row(row: ChartRow, visible: set[int]) -> Figure:
    """What every trace of a setting has: its name, its number for the legend, whether it is shown."""
    return {
        "name": escape(row.name),  # Plotly interprets HTML tags
        "meta": row.number,
        "visible": row.number in visible,
    }


def stroke(style: Look) -> Figure:
    """The line of a setting."""
    return {"color": style.colour, "width": 2, "dash": style.plotly_dash}


def first_run(row: ResultRow) -> tuple[int, list[Line]]:
    """The first seed of a setting and its lines."""
    return next(iter(row.runs.items()))


def has_several_seeds(rows: Sequence[ResultRow]) -> bool:
    """Has any setting more than one run?"""
    return any(len(row.runs) > 1 for row in rows)
