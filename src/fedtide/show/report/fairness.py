"""Charts of accuracy by how often clients took part, and of how often they did."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedtide.record.line import FairnessView
from fedtide.show.report.charts import Chart, layout
from fedtide.show.report.rows import ChartRow, Figure, of_row, shown

GROUPS = ("often", "rarely", "never")
PROXY = (
    "A proxy, as the owners of test examples are unknown: the test accuracy of each label, weighted by how "
    "many examples of it a client holds."
)
GROUPED = "Often: at least as many rounds as the mean client; rarely: fewer; never: none. Mean over seeds."


def fairness_charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """Both charts, if the journals hold the numbers (`evaluation.fairness`)."""
    views = {row.number: _views(row) for row in rows}
    kept = [row for row in rows if views[row.number]]
    if not kept:
        return []
    visible, proxy = (
        shown(rows),
        any(view.get("proxy", True) for row in kept for view in views[row.number]),
    )
    groups = [_bars(row, views[row.number], row.number in visible) for row in kept]
    spread = [_histogram(row, views[row.number][0], row.number in visible) for row in kept]
    return [
        Chart(
            "fairness",
            "Accuracy of clients by how often they took part" + " (proxy)" * proxy,
            [PROXY if proxy else "On each client's own test examples.", GROUPED],
            {"data": groups, "layout": layout("clients that took part", "accuracy (%)")},
        ),
        Chart(
            "participations",
            "How often clients took part",
            ["The first seed of each setting."],
            {"data": spread, "layout": layout("rounds a client took part in", "clients")},
        ),
    ]


def _views(row: ChartRow) -> list[FairnessView]:
    """The numbers in the last line of each finished run."""
    return [lines[-1]["fairness"] for lines in row.runs.values() if lines[-1].get("fairness")]


def _bars(row: ChartRow, views: list[FairnessView], visible: bool) -> Figure:
    heights: list[float | None] = []
    for group in GROUPS:
        values = [view["groups"][group]["accuracy"] for view in views]
        there = [100 * value for value in values if value is not None]
        heights.append(round(fmean(there), 2) if there else None)
    return _trace(row, list(GROUPS), heights, visible) | {"type": "bar"}


def _histogram(row: ChartRow, view: FairnessView, visible: bool) -> Figure:
    found = view["histogram"]
    line = {"mode": "lines", "line": {"color": row.look.colour, "shape": "hv"}}
    return _trace(row, found["rounds"], found["clients"], visible) | line


def _trace(row: ChartRow, x: list[Any], y: list[Any], visible: bool) -> Figure:
    marks = {"marker": {"color": row.look.colour}, "hovertemplate": "%{x}: %{y}"}
    return of_row(row, {row.number} if visible else set()) | {"x": x, "y": y, **marks}
