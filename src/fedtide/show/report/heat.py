"""Heat maps: a number for every cell, in one hue that the page chooses for light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.show.report.charts import Chart, Choice, layout
from fedtide.show.report.rows import ChartRow, Figure, shown

Floats = NDArray[np.float64]
CLIENTS = 60  # most rows of a heat map; with more clients, several share a row
ROUNDS = 150  # most columns of a heat map


def heat(z: Floats, x: Sequence[Any], y: Sequence[Any], hover: str) -> Figure:
    """The trace of a heat map; cells that are NaN stay empty."""
    cells = [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in z]
    return {
        "type": "heatmap",
        "z": cells,
        "x": list(x),
        "y": list(y),
        "coloraxis": "coloraxis",
        "hoverongaps": False,
        "hovertemplate": f"{hover}<extra></extra>",
    }


def heat_layout(x: str, y: str, unit: str, highest: float | None = None) -> Figure:
    """Axes, and a colour scale that begins at 0."""
    bar = {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    top = {} if highest is None else {"cmax": highest}
    drawn = layout(x, y) | {"coloraxis": {"cmin": 0, "colorbar": bar, **top}}
    drawn["xaxis"] |= {"showgrid": False, "tickformat": "d"}
    drawn["yaxis"] |= {"showgrid": False, "tickformat": "d", "autorange": "reversed"}
    return drawn


def varied(
    chart: Chart, rows: Sequence[ChartRow], draw: Callable[[ChartRow], Figure | None]
) -> list[Chart]:
    """The chart with what `draw` makes of each setting, and a choice between settings that differ."""
    views: list[Choice] = []
    for row in rows:
        if row.runs and row.number in shown(rows) and (trace := draw(row)):
            known = next((n for n, view in enumerate(views) if view.data == [trace]), None)
            if known is None:
                views.append(Choice(row.name, [trace]))
    if not views:
        return []
    figure = chart.figure | {"data": views[0].data}
    cells = [v for view in views for row_ in view.data[0]["z"] for v in row_ if v is not None]
    scale = {"cmax": max(cells, default=1) or 1} | figure["layout"]["coloraxis"]
    figure["layout"] = figure["layout"] | {"coloraxis": scale}  # Plotly needs cmin and cmax
    return [chart._replace(figure=figure, choices=views if len(views) > 1 else ())]


def binned(counts: Floats, columns: int) -> tuple[Floats, list[float]]:
    """Sums of neighbouring columns, at most `columns` of them, and the middle of each, counted from 1."""
    width = -(-counts.shape[1] // columns)
    starts = np.arange(0, counts.shape[1], width)
    ends = np.minimum(starts + width, counts.shape[1])
    return np.add.reduceat(counts, starts, axis=1), ((starts + 1 + ends) / 2).tolist()
