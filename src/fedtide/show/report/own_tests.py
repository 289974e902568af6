"""Charts of the scores of clients on their own test examples: over the rounds, and how they spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedtide.record.line import Line
from fedtide.show.report.charts import Chart, Quantity, curve, has_several_points, layout, thinned
from fedtide.show.report.fairness import PROXY
from fedtide.show.report.rows import ChartRow, Figure, has_several_seeds, of_row, shown

POINTS = 4_000  # of a chart, over all its lines

# Which score, after fine-tuning or not; how its line is drawn and described.
LINES = (
    ("mean", False, "solid", "Solid: mean over the clients."),
    ("worst", False, "dot", "Dotted: the worst tenth."),
    ("mean", True, "dash", "Dashed: mean after local fine-tuning."),
)


def own_test_charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """Both charts, if the journals hold the numbers (`evaluation.clients`)."""
    kept = [row for row in rows if any(map(_told, _lines(row)))]
    if not kept:
        return []
    proxy = any(told.get("proxy") for row in kept for line in _lines(row) if (told := _told(line)))
    title, axis = "Clients on their own test examples" + " (proxy)" * proxy, rows[0].scale.title
    tuned = any("personal" in told for row in kept for line in _lines(row) if (told := _told(line)))
    words = " ".join(words for _, own, _, words in LINES if tuned or not own)
    notes = [words, PROXY] if proxy else [words]
    visible = shown(rows)
    over = [trace for row in kept for trace in _over_rounds(row, visible, len(kept))]
    drawn = layout("rounds completed", axis)
    drawn["xaxis"]["tickformat"] = "d"
    charts = [
        Chart("own_tests", title, notes, {"data": over, "layout": drawn}),
        Chart(
            "own_tests_spread",
            "How the scores of clients spread" + " (proxy)" * proxy,
            [
                "After the last evaluation"
                + ", the first seed" * has_several_seeds(rows)
                + "."
                + " Dashed: after local fine-tuning." * tuned
            ],
            {
                "data": [trace for row in kept for trace in _spread(row, visible)],
                "layout": layout(axis, "clients"),
            },
        ),
    ]
    return [chart for chart in charts if chart.key != "own_tests" or has_several_points(chart)]


def _lines(row: ChartRow) -> Sequence[Line]:
    return [line for lines in row.runs.values() for line in lines]


def _told(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a line says of clients' own tests; empty if it says nothing."""
    found: Mapping[str, Any] = line.get("client_scores", {})
    return found if found.get("clients") else {}


def _over_rounds(row: ChartRow, visible: set[int], settings: int) -> Iterator[Figure]:
    factor = row.scale.factor
    for name, is_personal, dash, _ in LINES:

        def value(line: Line, name: str = name, own: bool = is_personal) -> float | None:
            told = _told(line)
            view = told.get("personal", {}) if own else told
            return factor * view[name] if name in view else None

        quantity = Quantity("own_tests", "", "", 4, "", value)
        found = thinned(curve(list(row.runs.values()), quantity), max(20, POINTS // settings // 3))
        if found.rounds:
            yield of_row(row, visible) | {
                "x": found.rounds,
                "y": found.mean,
                "mode": "lines" if len(found.rounds) > 1 else "markers",
                "line": {"color": row.look.colour, "width": 2, "dash": dash},
                "marker": {"color": row.look.colour},
                "hovertemplate": f"round %{{x}}, {name}: %{{y:.4g}}",
            }


def _spread(row: ChartRow, visible: set[int]) -> Iterator[Figure]:
    """The histogram of the last evaluation of the first seed, before and after fine-tuning."""
    told = next((t for line in reversed(next(iter(row.runs.values()))) if (t := _told(line))), {})
    for view, dash in ((told, "solid"), (told.get("personal", {}), "dash")):
        if found := view.get("histogram"):
            yield of_row(row, visible) | {
                "x": [row.scale.factor * edge for edge in found["edges"]],
                "y": [*found["clients"], 0],
                "mode": "lines",
                "line": {"color": row.look.colour, "shape": "hv", "dash": dash},
                "hovertemplate": "from %{x:.4g}: %{y} clients",
            }
