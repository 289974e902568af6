"""Charts of which clients exist, which take part and which labels they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedtide.core.types import Ids
from fedtide.measure import census
from fedtide.measure.story import moves
from fedtide.record.line import ClientMoves, Line
from fedtide.show.report.charts import (
    ABSENT,
    COHORT,
    POPULATION,
    SNAPSHOTS,
    Chart,
    layout,
    varying,
)
from fedtide.show.report.heat import CLIENTS, ROUNDS, Floats, binned, heat, heat_layout, varied
from fedtide.show.report.rows import ChartRow, Figure, first_run, of_row, shown

ARRIVED, RETURNED, LEFT = "#7d7d7d", "#c8c8c8", "#a08a6a"  # colours of no setting


class Raster(NamedTuple):
    """Clients over the rounds, several to a row if there are many: how many exist, how many took part."""

    clients: list[float]  # the middle of each row
    there: Floats | None  # [rows, rounds]: clients that exist; None without their ids
    took_part: Floats  # [rows, rounds]: clients of the cohort
    sizes: Floats  # [rows]: clients that share a row


def population_charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """Every chart about clients for which the journals hold numbers that vary."""
    return [
        *_presence(rows),
        *varying(rows, (POPULATION,)),
        *_participation(rows),
        *varying(rows, (COHORT, ABSENT)),
        *_snapshots(rows),
        *varying(rows, (SNAPSHOTS,)),
        *_labels(rows),
    ]


def raster(lines: Sequence[Line]) -> Raster | None:
    """Read a run's journal; None if it has no ids of clients."""
    news = {
        line["t"]: (_ids(line["arrived"]), _ids(line["left"])) for line in lines if _moved(line)
    }
    cohorts = [np.array(line.get("clients", []), dtype=np.int64) for line in lines]
    known = bool(news) and all(ids is not None for pair in news.values() for ids in pair)
    seen = [ids for pair in news.values() for ids in pair if ids is not None] + cohorts
    count = 1 + max((int(ids.max()) for ids in seen if len(ids)), default=-1)
    if not count:
        return None
    per_row = -(-count // CLIENTS)
    height = -(-count // per_row)
    took_part, there = np.zeros((height, len(lines))), np.zeros((height, len(lines)))
    now = np.zeros(height)
    for column, (line, cohort) in enumerate(zip(lines, cohorts, strict=True)):
        took_part[:, column] = np.bincount(cohort // per_row, minlength=height)
        for ids, sign in zip(news.get(line["t"], ()), (1, -1), strict=False):
            if ids is not None:
                now = now + sign * np.bincount(ids // per_row, minlength=height)
        there[:, column] = now
    firsts = np.arange(height) * per_row
    lasts = np.minimum(firsts + per_row, count) - 1
    sizes = (lasts - firsts + 1).astype(float)
    return Raster(((firsts + lasts) / 2).tolist(), there if known else None, took_part, sizes)


def _moved(line: Line) -> bool:
    return "arrived" in line and "left" in line


def _ids(moved: ClientMoves) -> Ids | None:
    """The ids of clients that arrived or left; None if only their number is known."""
    return census.named(moved["ids"]) if "ids" in moved else None


def _presence(rows: Sequence[ChartRow]) -> list[Chart]:
    """Which clients exist in which rounds, if any of them comes or goes."""

    def draw(row: ChartRow) -> Figure | None:
        found = raster(first_run(row)[1])
        if found is None or found.there is None or (np.ptp(found.there, axis=1) == 0).all():
            return None
        there, x = binned(found.there, ROUNDS)
        whole, _ = binned(np.ones_like(found.there) * found.sizes[:, None], ROUNDS)
        return _of_clients(100 * there / whole, x, found, "%{z:.0f} % exist")

    title = "Arrivals and departures: which clients exist"
    return varied(_chart(rows, "presence", title, "clients that exist (%)", 100), rows, draw)


def _participation(rows: Sequence[ChartRow]) -> list[Chart]:
    """Which clients take part in which rounds, unless all that exist always do."""

    def draw(row: ChartRow) -> Figure | None:
        found = raster(first_run(row)[1])
        if found is None:
            return None
        whole = np.ones_like(found.took_part) * found.sizes[:, None]
        there = whole if found.there is None else found.there
        if (found.took_part == there).all():
            return None
        (part, x), (base, _) = binned(found.took_part, ROUNDS), binned(there, ROUNDS)
        share = np.where(base > 0, 100 * part / np.maximum(base, 1), np.nan)
        return _of_clients(share, x, found, "took part in %{z:.3g} %")

    title = "Which clients took part"
    return varied(_chart(rows, "participation", title, "took part (% of rounds)"), rows, draw)


def _of_clients(z: Floats, x: list[float], found: Raster, hover: str) -> Figure:
    exact = (found.sizes == 1).all()
    clients = "client %{y}" if exact else "clients around %{y}"
    return heat(z, x, found.clients, f"{clients}, round %{{x}}: {hover}")


def _chart(
    rows: Sequence[ChartRow], key: str, title: str, unit: str, highest: float | None = None
) -> Chart:
    figure = {"layout": heat_layout("rounds completed", "client (number)", unit, highest)}
    return Chart(key, title, _first_seed(rows), figure)


def _first_seed(rows: Sequence[ChartRow]) -> list[str]:
    seeds = {seed for row in rows if row.runs for seed in row.runs}
    first = next((first_run(row)[0] for row in rows if row.runs), None)
    return [f"Seed {first}."] if len(seeds) > 1 else []


def moves_chart(rows: Sequence[ChartRow]) -> list[Chart]:
    """How many clients arrived, returned and left, in rounds or, of many rounds, in stretches of them."""
    row = next((row for row in rows if row.runs), None)
    lines = first_run(row)[1] if row else []
    width = -(-len(lines) // ROUNDS) or 1
    parts = {n: lines[max(n, 1) : n + width] for n in range(0, len(lines), width)}
    moved = [(n, found) for n, part in parts.items() if any(found := moves(part))]
    if not moved:
        return []
    bars = {
        "came for the first time": (ARRIVED, [found.came - found.returned for _, found in moved]),
        "returned": (RETURNED, [found.returned for _, found in moved]),
        "left": (LEFT, [-found.left for _, found in moved]),
    }
    x = [n + (1 + width) / 2 for n, _ in moved]
    when = f"%{{x}} ({width} rounds)" if width > 1 else "%{x}"
    traces: list[Figure] = [
        {
            "type": "bar",
            "name": name,
            "x": x,
            "y": counts,
            "marker": {"color": colour},
            "hovertemplate": f"round {when}: %{{y}} {name}<extra></extra>",
        }
        for name, (colour, counts) in bars.items()
        if any(counts)
    ]
    drawn = layout("round", f"clients{f' in {width} rounds' if width > 1 else ''}")
    drawn |= {"barmode": "relative", "showlegend": True, "legend": {"orientation": "h", "y": 1.15}}
    drawn["xaxis"]["tickformat"] = "d"
    drawn["yaxis"]["zeroline"] = True
    notes = ["Above zero: clients that came. Below: clients that left.", *_first_seed(rows)]
    title = "How many clients came, returned and left"
    return [Chart("moves", title, notes, {"data": traces, "layout": drawn}, wide=True)]


def _snapshots(rows: Sequence[ChartRow]) -> list[Chart]:
    """A mark for every snapshot round of FAST, one line of marks for each setting."""
    traces: list[Figure] = []
    for row in rows:
        marks = (
            [line["t"] + 1 for line in first_run(row)[1] if line.get("snapshot")]
            if row.runs
            else []
        )
        if marks:
            traces.append(
                of_row(row, shown(rows))
                | {
                    "x": marks,
                    "y": [len(traces) + 1] * len(marks),
                    "mode": "markers",
                    "marker": {
                        "symbol": "line-ns-open",
                        "size": 12,
                        "line": {"width": 2},
                        "color": row.look.colour,
                    },
                    "hovertemplate": "round %{x}",
                }
            )
    drawn = layout("rounds completed", "setting (by colour)")
    drawn["xaxis"]["tickformat"] = "d"
    drawn["yaxis"] |= {"showticklabels": False, "range": [0.3, len(traces) + 0.7]}
    notes = ["A mark for every round whose clients were drawn uniformly.", *_first_seed(rows)]
    chart = Chart("snapshots", "Snapshot rounds", notes, {"data": traces, "layout": drawn})
    return [chart] if traces else []


def _labels(rows: Sequence[ChartRow]) -> list[Chart]:
    """How many examples of each label clients hold."""

    def draw(row: ChartRow) -> Figure | None:
        held = first_run(row)[1][0].get("holdings")
        if not held or not held["labels"]:
            return None
        counts, ids = np.array(held["labels"], dtype=float), census.named(held["ids"])
        hover = "client %{y}, label %{x}: %{z} examples"
        names = [str(label) for label in range(counts.shape[1])]
        return heat(counts, names, [str(n) for n in ids.tolist()], hover)

    drawn = heat_layout("label (number)", "client (number)", "examples")
    for axis in ("xaxis", "yaxis"):
        drawn[axis] |= {"type": "category"}
    chart = Chart("labels", "Labels that clients hold", _first_seed(rows), {"layout": drawn})
    return varied(chart, rows, draw)
