"""Charts of the score over simulated seconds, joules and megabytes, and of wall time by phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from fedtide.record.line import Line
from fedtide.show.report.charts import POINTS, Chart, Quantity, layout, score_of
from fedtide.show.report.rows import (
    ChartRow,
    Figure,
    has_several_seeds,
    of_row,
    shown,
    stroke,
)


class Cost(NamedTuple):
    """A quantity that rounds use up, with its title and units."""

    key: str
    title: str
    axis: str
    hover: str
    of: Callable[[Line], float]


SECONDS = Cost(
    "over_seconds",
    "{score} over simulated time",
    "simulated time (s)",
    "after %{x:.4g} s: ",
    lambda line: float(line.get("latency", 0)),
)
JOULES = Cost(
    "over_joules",
    "{score} over energy",
    "energy of all clients (J)",
    "after %{x:.4g} J: ",
    lambda line: float(line.get("joules", 0)),
)
MEGABYTES = Cost(
    "over_megabytes",
    "{score} over traffic",
    "uploaded by all clients (MB)",
    "after %{x:.4g} MB: ",
    lambda line: line["bytes_up"] / 1e6,
)


def cost_charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """The score over each cost that is not zero; over traffic only if settings differ in it."""
    costs = [cost for cost in (SECONDS, JOULES) if any(_total(row, cost) for row in rows)]
    if len({round(_total(row, MEGABYTES), 6) for row in rows if row.final}) > 1:
        costs.append(MEGABYTES)
    made = [_chart(rows, cost) for cost in costs]
    return [chart for chart in made if chart.figure["data"]] + _phases(rows)


def _total(row: ChartRow, cost: Cost) -> float:
    return fmean([sum(map(cost.of, lines)) for lines in row.runs.values()]) if row.runs else 0.0


def _chart(rows: Sequence[ChartRow], cost: Cost) -> Chart:
    score = score_of(rows)
    traces = [
        of_row(row, shown(rows))
        | {
            "x": [float(f"{x:.6g}") for x, _ in points],
            "y": [round(y, score.digits) for _, y in points],
            "mode": "lines",
            "line": stroke(row.look),
            "hovertemplate": cost.hover + score.hover,
        }
        for row in rows
        if len(points := _points(row, score, cost, len(rows))) > 1
    ]
    notes = ["Means over the seeds, round by round."] if has_several_seeds(rows) else []
    figure = {"data": traces, "layout": layout(cost.axis, score.axis)}
    name = score.title.removeprefix("Test ")
    title = cost.title.format(score=name[:1].upper() + name[1:])
    return Chart(cost.key, title, notes, figure)


def _points(row: ChartRow, score: Quantity, cost: Cost, settings: int) -> list[tuple[float, float]]:
    """Cost up to each evaluated round and its score, means over the seeds that reached it."""
    found: dict[int, list[tuple[float, float]]] = {}
    for lines in row.runs.values():
        for line, spent in zip(lines, accumulate(map(cost.of, lines)), strict=True):
            if (value := score.value(line)) is not None:
                found.setdefault(line["t"], []).append((spent, value))
    stride = -(-len(found) * settings // POINTS) or 1
    kept = [values for _, values in sorted(found.items())][::stride]
    return [(fmean(x for x, _ in values), fmean(y for _, y in values)) for values in kept]


def _phases(rows: Sequence[ChartRow]) -> list[Chart]:
    """Wall time by phase of a round."""
    traces: list[Figure] = []
    for row in rows:
        totals: dict[str, float] = {}
        for lines in row.runs.values():
            for line in lines:
                for phase, seconds in line["seconds"].items():
                    totals[phase] = totals.get(phase, 0) + seconds / len(row.runs)
        if totals:
            traces.append(
                of_row(row, shown(rows))
                | {
                    "type": "bar",
                    "x": list(totals),
                    "y": [float(f"{seconds:.4g}") for seconds in totals.values()],
                    "marker": {"color": row.look.colour},
                    "hovertemplate": "%{x}: %{y:.3g} s",
                }
            )
    mean = "; mean over the seeds." if has_several_seeds(rows) else "."
    notes = [f"Wall time on this machine, all rounds of a run{mean}"]
    figure = {"data": traces, "layout": layout("phase of a round", "wall time (s per run)")}
    return [Chart("phases", "Where the time goes", notes, figure)] if traces else []
