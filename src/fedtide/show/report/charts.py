"""Charts of quantities over the rounds, as Plotly figures: plain data that the page draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.scale import ACCURACY
from fedtide.record.line import Line
from fedtide.show.report.colours import Look, look
from fedtide.show.report.rows import MANY, ChartRow, Figure, of_row, shown, stroke
from fedtide.show.report.sessions import Span, common_spans

POINTS = 8_000  # of a chart, over all its lines, so that the file stays small
SESSIONS = 60  # with more, the stripes would be thinner than a line
NUMBERED = 12  # sessions that get a number
WRITTEN = 48  # characters that fit side by side above a chart of half the page's width
MARGIN = {"l": 56, "r": 12, "t": 12, "b": 44}


class Curve(NamedTuple):
    """A quantity over rounds: mean, lowest and highest over the seeds."""

    rounds: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class Choice(NamedTuple):
    """One of several views of a chart, such as that of one setting."""

    label: str
    data: Sequence[Figure]


class Chart(NamedTuple):
    """A figure with its title and notes; if there are `choices`, the page shows one of them as its data."""

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
    """A number of a journal line, over the rounds, with its title and units."""

    key: str
    title: str
    axis: str
    digits: int
    hover: str
    value: Callable[[Line], float | None]


def _share(key: str) -> Callable[[Line], float | None]:
    """A share between 0 and 1 in percent; None where a journal does not have it."""

    def share(line: Mapping[str, Any]) -> float | None:
        return None if line.get(key) is None else 100 * line[key]

    return share


def score_of(rows: Sequence[ChartRow]) -> Quantity:
    """The score of a study; accuracies in percent."""
    scale = rows[0].scale if rows else ACCURACY
    if not scale.is_accuracy:
        title = f"Test {scale.name}"
        return Quantity("score", title, title.lower(), 6, "%{y:.4g}", scale.value)
    value = _share("accuracy")
    return Quantity("accuracy", "Test accuracy", "test accuracy (%)", 2, "%{y:.1f} %", value)


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


def charts(rows: Sequence[ChartRow]) -> list[Chart]:
    """The score and losses over the rounds; none of a study with a single round."""
    score = score_of(rows)
    made = [
        _chart(rows, score)._replace(wide=True),
        *([] if score.axis == "test loss" else [_chart(rows, LOSS)]),
        _chart(rows, TRAIN_LOSS),
    ]
    return [chart for chart in made if has_several_points(chart)]


def varying(rows: Sequence[ChartRow], quantities: Sequence[Quantity]) -> list[Chart]:
    """A chart for each of these quantities that is not the same number in every round."""
    lines = [line for row in rows for lines in row.runs.values() for line in lines]
    kept = [q for q in quantities if len({q.value(line) for line in lines} - {None}) > 1]
    return [chart for q in kept if has_several_points(chart := _chart(rows, q))]


def has_several_points(chart: Chart) -> bool:
    """Has any line of the chart more than one point?"""
    return any(len(trace["x"]) > 1 for trace in chart.figure["data"])


def curve(runs: Sequence[Sequence[Line]], quantity: Quantity) -> Curve:
    """A quantity over the runs of a setting; each round over the runs that reached it."""
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
    """Every k-th point and the last one, so that about `limit` points are left."""
    stride = -(-len(whole.rounds) // limit)
    if stride <= 1:
        return whole
    last = len(whole.rounds) - 1
    kept = [i for i in range(last + 1) if i % stride == 0 or i == last]
    rounds = [whole.rounds[i] for i in kept]
    return Curve(rounds, *([column[i] for i in kept] for column in whole[1:]))


def _chart(rows: Sequence[ChartRow], quantity: Quantity) -> Chart:
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
        drawn["xaxis"]["dtick"] = 1  # no tick at round 1.5
    figure = {"data": traces, "layout": drawn}
    return Chart(quantity.key, quantity.title, notes, figure)


def _traces(points: Curve, style: Look, common: Figure, hover: str) -> Iterator[Figure]:
    """The band from the lowest to the highest seed, if they differ, and the line of their mean."""
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
    """Two axes with titles, without zero lines."""
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
    """Every second session as a stripe, with numbers above the chart."""
    if len(sessions) < 2 or _too_many(sessions):
        return {}
    numbered = sessions[:: -(-len(sessions) // NUMBERED)]
    counted = _counted(sessions)
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
            "text": f"<b>{span.number}</b>" + (f"<br>{span.clients}" if counted else ""),
        }
        for span in numbered
    ]
    margin = MARGIN | {"t": 46 if counted else 30}
    return {"shapes": shapes, "annotations": labels, "margin": margin}


def _too_many(sessions: Sequence[Span]) -> bool:
    """Would the stripes be thinner than a line, or hardly longer than a round?"""
    return len(sessions) > SESSIONS or 2 * len(sessions) > sessions[-1].last


def _counted(sessions: Sequence[Span]) -> bool:
    """Do sessions differ in how many clients they have, and is there room to write it above them?"""
    room = sum(len(span.clients) + 1 for span in sessions) <= WRITTEN
    return room and len({span.clients for span in sessions}) > 1


def _notes(rows: Sequence[ChartRow], curves: dict[int, Curve], cut: bool) -> Iterator[str]:
    if any(c.low != c.high for c in curves.values()):
        yield "Line: mean over the seeds. Band: lowest to highest seed."
    if any(len({len(lines) for lines in row.runs.values()}) > 1 for row in rows):
        yield "Runs of a setting differ in length: each round shows those that reached it."
    if len(rows) > MANY:
        yield f"Of {len(rows)} settings the {MANY} best are shown; the legend adds the others."
    if cut:
        yield "To keep the file small, not every round is drawn."


def _session_notes(sessions: Sequence[Span] | None) -> Iterator[str]:
    if sessions is None:
        yield "Sessions begin at different rounds in different runs, so they are not marked."
    elif len(sessions) > 1 and _too_many(sessions):
        yield f"{len(sessions)} sessions in {sessions[-1].last} rounds, too many to mark."
    elif len(sessions) > 1:
        clients = {span.clients for span in sessions}
        if len(clients) == 1:
            yield f"Stripes: sessions, numbered above; {clients.pop()} clients in each."
        elif _counted(sessions):
            yield "Stripes: sessions, with their number and their clients above."
        else:
            yield "Stripes: sessions, numbered above."
