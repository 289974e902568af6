"""Charts as Plotly figures: plain data that the page draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.results import Row, ranked
from fedtide.record.line import Line
from fedtide.show.report.colours import Look, look
from fedtide.show.report.sessions import Span, common_spans

Figure = dict[str, Any]

MANY = 8  # lines; above this a chart begins with the best ones, the legend brings the others
POINTS = 8_000  # of a chart, over all its lines: keeps the file small
SESSIONS = 60  # above this, bands would be thinner than a line
NUMBERED = 12  # sessions that get a number
MARGIN = {"l": 56, "r": 12, "t": 12, "b": 44}


class Curve(NamedTuple):
    """A quantity over rounds: mean, lowest and highest over the seeds."""

    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class Choice(NamedTuple):
    """One of several views of a chart, such as a setting of its own."""

    label: str
    data: Sequence[Figure]


class Chart(NamedTuple):
    """A figure with the words around it; `choices`, if any, take the place of its data."""

    key: str
    title: str
    notes: Sequence[str]
    figure: Figure
    wide: bool = False
    choices: Sequence[Choice] = ()


class Section(NamedTuple):
    """Charts that answer one question."""

    title: str
    charts: Sequence[Chart]


class Quantity(NamedTuple):
    """What a chart shows of a journal line."""

    key: str
    title: str
    axis: str
    digits: int
    hover: str
    value: Callable[[Line], float | None]


def _percent(line: Line) -> float | None:
    return None if line["accuracy"] is None else 100 * line["accuracy"]


def _share(key: str) -> Callable[[Line], float | None]:
    """A share that some journals have, in percent."""

    def share(line: Mapping[str, Any]) -> float | None:
        return None if line.get(key) is None else 100 * line[key]

    return share


ACCURACY = Quantity("accuracy", "Test accuracy", "test accuracy (%)", 2, "%{y:.1f} %", _percent)
LOSS = Quantity(
    "loss", "Test loss", "test loss (mean per example)", 4, "%{y:.3f}", itemgetter("loss")
)
TRAIN_LOSS = Quantity(
    "train_loss",
    "Training loss",
    "training loss (mean per example)",
    4,
    "%{y:.3f}",
    itemgetter("train_loss"),
)
COHORT = Quantity(
    "cohort",
    "Clients that took part",
    "cohort size (clients)",
    2,
    "%{y:.1f} clients",
    itemgetter("cohort"),
)
POPULATION = Quantity(
    "population",
    "Clients that exist",
    "population (clients)",
    2,
    "%{y:.1f} clients",
    itemgetter("population"),
)
ABSENT = Quantity(
    "absent",
    "Stragglers: drawn, but could not take part",
    "stragglers (clients)",
    2,
    "%{y:.1f} clients",
    lambda line: line.get("absent"),
)
RATE = Quantity(
    "lr",
    "Learning rate of the round",
    "learning rate (step size)",
    8,
    "%{y:.4g}",
    lambda line: line.get("lr"),
)
AT_FLOOR = Quantity(
    "at_floor",
    "Rates at their lower limit",
    "clients and local epochs (%)",
    2,
    "%{y:.1f} %",
    _share("at_floor"),
)
AT_CAP = AT_FLOOR._replace(key="at_cap", title="Rates at their upper limit", value=_share("at_cap"))
SNAPSHOTS = Quantity(
    "q",
    "How likely a snapshot round is",
    "probability of a snapshot (%)",
    2,
    "%{y:.1f} %",
    _share("q"),
)


def charts(rows: Sequence[Row]) -> list[Chart]:
    """How the model learns; a single round is no course."""
    made = [
        _chart(rows, ACCURACY)._replace(wide=True),
        _chart(rows, LOSS),
        _chart(rows, TRAIN_LOSS),
    ]
    return [chart for chart in made if is_course(chart)]


def varying(rows: Sequence[Row], quantities: Sequence[Quantity]) -> list[Chart]:
    """A chart for each of these quantities that is not the same number all the time."""
    lines = [line for row in rows for lines in row.runs.values() for line in lines]
    kept = [q for q in quantities if len({q.value(line) for line in lines} - {None}) > 1]
    return [chart for q in kept if is_course(chart := _chart(rows, q))]


def is_course(chart: Chart) -> bool:
    """Is there more than one point to draw?"""
    return any(len(trace["x"]) > 1 for trace in chart.figure["data"])


def shown(rows: Sequence[Row]) -> set[int]:
    """The rows whose lines are visible at first: all, or the best of many."""
    return {row.number for row in ranked(rows)[:MANY]}


def of_row(row: Row, visible: set[int]) -> Figure:
    """What every trace of a setting has: its name, its number for the legend, whether it is shown."""
    return {
        "name": escape(row.label),  # Plotly reads tags
        "meta": row.number,
        "visible": row.number in visible,
    }


def stroke(style: Look) -> Figure:
    """The line of a setting."""
    return {"color": style.colour, "width": 2, "dash": style.plotly_dash}


def curve(runs: Sequence[Sequence[Line]], quantity: Quantity) -> Curve:
    """A quantity over the runs of a row; each round over the runs that got so far."""
    values: dict[int, list[float]] = {}
    for lines in runs:
        for line in lines:
            if (value := quantity.value(line)) is not None:
                values.setdefault(line["t"] + 1, []).append(value)
    points = [(t, fmean(found), min(found), max(found)) for t, found in sorted(values.items())]
    digits = quantity.digits
    return Curve(
        [t for t, *_ in points],
        [round(mean, digits) for _, mean, _, _ in points],
        [round(low, digits) for _, _, low, _ in points],
        [round(high, digits) for *_, high in points],
    )


def thinned(whole: Curve, limit: int) -> Curve:
    """Every k-th point, and the last."""
    stride = -(-len(whole.rounds) // limit)
    if stride <= 1:
        return whole
    last = len(whole.rounds) - 1
    kept = [i for i in range(last + 1) if i % stride == 0 or i == last]
    rounds = [whole.rounds[i] for i in kept]
    return Curve(rounds, *([column[i] for i in kept] for column in whole[1:]))


def _chart(rows: Sequence[Row], quantity: Quantity) -> Chart:
    limit = max(20, POINTS // max(1, len(rows)))
    whole = {row.number: curve(list(row.runs.values()), quantity) for row in rows}
    curves = {number: thinned(c, limit) for number, c in whole.items() if c.rounds}
    visible, many = shown(rows), len(rows) > MANY
    hover = f"round %{{x}}: {quantity.hover}" if many else quantity.hover
    traces: list[Figure] = []
    if len(curves) > 1 and all(c == next(iter(curves.values())) for c in curves.values()):
        one = next(iter(curves.values()))
        traces += _traces(one, look(6), {"name": "every setting"}, hover)
    else:
        for row in rows:
            if row.number in curves:
                traces += _traces(curves[row.number], row.look, of_row(row, visible), hover)
    sessions = common_spans(rows)
    cut = any(len(c.rounds) > limit for c in whole.values())
    notes = [*_notes(rows, curves, cut), *_session_notes(sessions)]
    drawn = _layout(quantity, many) | _bands(sessions or [])
    if max((c.rounds[-1] for c in curves.values()), default=0) <= NUMBERED:
        drawn["xaxis"]["dtick"] = 1  # no round one and a half
    figure = {"data": traces, "layout": drawn}
    return Chart(quantity.key, quantity.title, notes, figure)


def _traces(points: Curve, style: Look, common: Figure, hover: str) -> Iterator[Figure]:
    """The band over the seeds, if there is one, and the line."""
    single = len(points.rounds) == 1
    if points.low != points.high and not single:
        yield common | {
            "x": points.rounds + points.rounds[::-1],
            "y": points.high + points.low[::-1],
            "fill": "toself",
            "fillcolor": style.shade,
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
        }
    yield common | {
        "x": points.rounds,
        "y": points.mean,
        "mode": "markers" if single else "lines",
        "line": stroke(style),
        "marker": {"color": style.colour, "size": 9},
        "hovertemplate": hover,
    }


def layout(x: str, y: str) -> Figure:
    """Two quiet axes with titles."""
    quiet = {"automargin": True, "zeroline": False}
    return {
        "xaxis": quiet | {"title": {"text": x}},
        "yaxis": quiet | {"title": {"text": y}},
        "hovermode": "closest",
        "hoverlabel": {"namelength": -1},
        "showlegend": False,
        "margin": dict(MARGIN),
    }


def _layout(quantity: Quantity, many: bool) -> Figure:
    drawn = layout("rounds completed", quantity.axis)
    drawn["hovermode"] = "closest" if many else "x unified"
    drawn["xaxis"] |= {
        "tickformat": "d",
        "spikethickness": 1,
        "spikedash": "solid",
        "spikecolor": "rgba(128,128,128,0.8)",
        "unifiedhovertitle": {"text": "round %{x}"},
    }
    return drawn


def _bands(sessions: Sequence[Span]) -> Figure:
    """Every other session shaded, each with its number above the chart."""
    if not 1 < len(sessions) <= SESSIONS:
        return {}
    every = -(-len(sessions) // NUMBERED)
    varies = len({span.clients for span in sessions}) > 1
    shapes = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": span.first - 0.5,
            "x1": span.last + 0.5,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": "rgba(128,128,128,0.13)",
        }
        for span in sessions[1::2]
    ]
    labels = [
        {
            "xref": "x",
            "yref": "paper",
            "x": (span.first + span.last) / 2,
            "y": 1,
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"<b>{span.number}</b>" + (f"<br>{span.clients}" if varies else ""),
        }
        for span in sessions[::every]
    ]
    margin = MARGIN | {"t": 46 if varies else 30}
    return {"shapes": shapes, "annotations": labels, "margin": margin}


def _notes(rows: Sequence[Row], curves: dict[int, Curve], cut: bool) -> Iterator[str]:
    if any(c.low != c.high for c in curves.values()):
        yield "Line: mean over the seeds. Band: lowest to highest seed."
    if any(len({len(lines) for lines in row.runs.values()}) > 1 for row in rows):
        yield "Runs of a setting differ in length: each round shows those that got so far."
    if len(rows) > MANY:
        yield f"Of {len(rows)} settings the {MANY} best are shown; the legend adds the others."
    if cut:
        yield "To keep the file small, not every round is drawn."


def _session_notes(sessions: Sequence[Span] | None) -> Iterator[str]:
    if sessions is None:
        yield "Sessions begin at different rounds in different runs, so they are not marked."
    elif len(sessions) > SESSIONS:
        yield f"{len(sessions)} sessions, too many to mark."
    elif len(sessions) > 1:
        clients = {span.clients for span in sessions}
        if len(clients) == 1:
            yield f"Stripes: sessions, numbered above; {clients.pop()} clients in each."
        else:
            yield "Stripes: sessions, with their number and their clients above."
