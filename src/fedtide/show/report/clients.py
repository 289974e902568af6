"""Charts with a dot for every client and round: its learning rates, its drift, its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.show.report.charts import Chart, layout
from fedtide.show.report.rows import ChartRow, Figure, has_several_seeds, of_row, shown

DOTS = 12_000  # of a chart, over all its settings, so that the file stays small
# Of local epochs 1, 2, ...; the last one is for all others.
SYMBOLS = ("circle", "diamond", "cross", "x", "triangle-up")


class Fact(NamedTuple):
    """A number that the journal holds of every client, or one per local epoch."""

    key: str
    title: str
    axis: str
    note: str
    scale: str = "log"


FACTS = (
    Fact(
        "rates",
        "Learning rates of the clients",
        "learning rate (step size)",
        "A dot for every client; local epochs 1, 2, 3: circle, diamond, cross.",
    ),
    Fact(
        "drift",
        "Drift of the clients",
        "distance to the clients' mean (norm)",
        "A dot for every client at the end of its round.",
    ),
    Fact(
        "scores",
        "Scores of the clients",
        "score (lambda_u)",
        "A dot for every client of a round: the weight of its gradient at OSAFL's server.",
        "linear",
    ),
)


def client_charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """A chart for each of these facts that the journals hold, of the first seed of each setting."""
    made = []
    for fact in FACTS:
        traces = [trace for row in rows for trace in _traces(row, fact, len(rows), shown(rows))]
        if traces:
            several = has_several_seeds(rows)
            notes = [fact.note, *(["The first seed of each setting."] if several else [])]
            drawn = layout("rounds completed", fact.axis)
            drawn["xaxis"]["tickformat"], drawn["yaxis"]["type"] = "d", fact.scale
            made.append(Chart(fact.key, fact.title, notes, {"data": traces, "layout": drawn}))
    return made


def _traces(row: ChartRow, fact: Fact, settings: int, visible: set[int]) -> Iterator[Figure]:
    lines = [line for line in next(iter(row.runs.values()), []) if line.get(fact.key)]
    dots = sum(len(_numbers(line, fact, 0)) for line in lines) * (_epochs(lines, fact) or 1)
    stride = max(1, -(-dots * settings // DOTS))
    for epoch in range(_epochs(lines, fact)):
        kept = [(line["t"] + 1, y) for line in lines[::stride] for y in _numbers(line, fact, epoch)]
        yield of_row(row, visible) | {
            "x": [t for t, _ in kept],
            "y": [float(f"{y:.4g}") for _, y in kept],
            "mode": "markers",
            "marker": {
                "color": row.look.colour,
                "size": 4,
                "opacity": 0.6,
                "symbol": SYMBOLS[min(epoch, len(SYMBOLS) - 1)],
            },
            "hovertemplate": f"round %{{x}}, epoch {epoch + 1}: %{{y}}",
        }


def _epochs(lines: Sequence[Mapping[str, Any]], fact: Fact) -> int:
    """How many numbers a client has in a round."""
    first = lines[0][fact.key][0] if lines else []
    return len(first) if isinstance(first, list) else 1


def _numbers(line: Mapping[str, Any], fact: Fact, epoch: int) -> list[float]:
    return [each[epoch] if isinstance(each, list) else each for each in line[fact.key]]
