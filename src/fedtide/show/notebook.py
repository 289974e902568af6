"""The rounds of a run as a pandas frame, a Plotly figure and a card in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import needs
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.windows import evaluated
from fedtide.record.line import Line, leaves
from fedtide.show.report.colours import look

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

WIDTH, HEIGHT = 240, 48  # of the curve in a card, in pixels


def frame(runs: Iterable[tuple[Mapping[str, Any], Sequence[Line]]]) -> DataFrame:
    """One row per round: facts about its run, then its line, with nested tables as dotted columns."""
    needs("to_pandas", "pandas", "pandas")
    import pandas

    rows = [{**about, **line} for about, lines in runs for line in lines]
    return pandas.DataFrame([{".".join(path): v for path, v in leaves(row)} for row in rows])


def figure(lines: Sequence[Line], scale: Scale = ACCURACY) -> Figure:
    """Score and loss on the test set over the rounds; every other session is shaded."""
    from plotly.graph_objects import Figure, Scatter

    tested = evaluated(lines, scale)
    rounds = [line.t + 1 for line in tested]
    curves = [
        (scale.title, [scale.factor * line.score for line in tested]),
        ("loss", [line.loss for line in tested]),
    ]
    drawn = Figure(
        [
            Scatter(
                x=rounds,
                y=values,
                name=name,
                mode="lines+markers" if len(rounds) < 30 else "lines",
                line={"color": look(number).colour},
                yaxis=f"y{number + 1}",
            )
            for number, (name, values) in enumerate(curves)
        ]
    )
    drawn.update_layout(
        title=f"Test {scale.name} and loss",
        xaxis={"title": "round", "anchor": "y2"},
        yaxis={"title": scale.title, "domain": [0.55, 1.0]},
        yaxis2={"title": "loss", "domain": [0.0, 0.45]},
        showlegend=False,
    )
    for number, session in groupby(lines, lambda line: line["session"]):
        rounds = [line["t"] + 1 for line in session]
        if number % 2:
            drawn.add_vrect(
                rounds[0] - 0.5, rounds[-1] + 0.5, fillcolor="grey", opacity=0.12, line_width=0
            )
    return drawn


def card(algorithm: str, engine: str, lines: Sequence[Line], scale: Scale = ACCURACY) -> str:
    """A run as HTML: a few facts and a small curve of its score."""
    tested = [line.score for line in evaluated(lines, scale)]
    found = "not tested"
    if tested:
        found = f"{scale.text(tested[-1])} (best {scale.text(scale.best(tested))})"
    facts = {
        "algorithm": algorithm,
        "rounds": len(lines),
        scale.name: found,
        "uploaded": f"{sum(line['bytes_up'] for line in lines) / 1e6:.1f} MB",
        "engine": engine,
    }
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>{_curve([scale.value(line) for line in lines], scale)}"


def _curve(scores: Sequence[float | None], scale: Scale) -> str:
    """The score over the rounds, as a small picture: accuracy from 0 to 1, others between their ends."""
    tested = [score for score in scores if score is not None]
    low, high = (0.0, 1.0) if scale.is_accuracy or not tested else (min(tested), max(tested))
    step, span = WIDTH / max(1, len(scores) - 1), high - low or 1.0
    points = " ".join(
        f"{number * step:.1f},{HEIGHT * (1 - (value - low) / span):.1f}"
        for number, value in enumerate(scores)
        if value is not None
    )
    ends = "0 to 100 %" if scale.is_accuracy else f"{scale.text(low)} to {scale.text(high)}"
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}' role='img' style='overflow:visible'>"
        f"<title>test {escape(scale.name)} over rounds, from {ends}</title>"
        f"<polyline points='{points}' fill='none' stroke='{look(0).colour}' stroke-width='2'/></svg>"
    )
