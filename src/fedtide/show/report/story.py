"""The starts of a study in one chart and one table: what was taken, why, and what it gained or cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedtide.measure.results import Results
from fedtide.measure.scale import Scale
from fedtide.measure.story import CURRENT, PopulationChange, StartEvent, events, goes_on
from fedtide.show.columns import NONE
from fedtide.show.report.charts import Chart, layout
from fedtide.show.report.rows import ChartRow, Figure, first_run, has_several_seeds, of_row, shown

MOST = 300  # rows of the table
COSTS = {"bytes": "MB", "latency": "s", "joules": "J", "steps": "steps"}


class Story(NamedTuple):
    """The starts of a setting in the run of its first seed."""

    row: ChartRow
    beside: str  # the name of the setting that only goes on; empty without one
    events: Sequence[StartEvent]


class StoryRow(NamedTuple):
    """A start, as the table shows it."""

    number: int  # of the setting
    name: str
    round: int
    present: int  # clients
    moves: PopulationChange
    reason: str
    source: str
    gain: str
    score: str
    beyond: str
    cost: str


def stories(results: Results, rows: Sequence[ChartRow]) -> list[Story]:
    """The starts of every setting that has any after the first one, but not of the one that only goes on."""
    found = []
    for problem in results.problems:
        mine = [rows[number] for number in problem.rows if rows[number].runs]
        base = next((row for row in mine if goes_on(row.settings.get("start"))), None)
        for row in (row for row in mine if row is not base):
            seed, lines = first_run(row)
            other = base.runs.get(seed, []) if base else []
            told = list(events(lines, other, results.transition_rounds, results.scale))
            if told:
                found.append(Story(row, base.name if base and other else "", told))
    return found


def start_charts(results: Results, told: Sequence[Story]) -> list[Chart]:
    """What every start brought, beside a run that goes on with the current model if the study has one."""
    beside = sorted({story.beside for story in told} - {""})
    kept = [story for story in told if story.beside] if beside else list(told)
    visible = shown([story.row for story in kept])
    traces = [
        trace for story in kept for trace in _traces(story, results.scale, bool(beside), visible)
    ]
    if not traces:
        return []
    rounds, scale = results.transition_rounds, results.scale
    first = "first round" if rounds == 1 else f"first {rounds} rounds"
    unit = "points" if scale.is_accuracy else scale.name
    axis = f"gain over {beside[0]} ({unit})" if len(beside) == 1 else f"gain over going on ({unit})"
    drawn = layout("rounds completed", axis if beside else f"{scale.title} after the start")
    drawn["xaxis"]["tickformat"] = "d"
    drawn["yaxis"]["zeroline"] = bool(beside)
    beyond = f", minus that of {beside[0] if len(beside) == 1 else 'going on'}" if beside else ""
    notes = [
        f"A mark for every start: mean {scale.name} in its {first}{beyond}. Open marks: the current model "
        "stayed. Point at a mark for the clients that came and went, the reason, the model and its cost."
    ]
    notes += [f"Seed {first_run(kept[0].row)[0]}."] if has_several_seeds([kept[0].row]) else []
    title = "What each start brought"
    return [Chart("starts", title, notes, {"data": traces, "layout": drawn}, wide=True)]


def _traces(story: Story, scale: Scale, beside: bool, visible: set[int]) -> Iterator[Figure]:
    """The starts that took another model, and those with which the current one stayed."""
    row = story.row
    valued = [(one, one.beyond if beside else one.score) for one in story.events]
    for symbol, stays in (("circle", False), ("circle-open", True)):
        known = [(o, v) for o, v in valued if v is not None and (o.source == CURRENT) == stays]
        if known:
            yield of_row(row, visible) | {
                "x": [one.t + 1 for one, _ in known],
                "y": [round(scale.factor * value, 4) for _, value in known],
                "text": [_words(one, scale) for one, _ in known],
                "mode": "markers",
                "marker": {"color": row.look.colour, "size": 9, "symbol": symbol},
                "hovertemplate": "%{text}",
            }


def _words(one: StartEvent, scale: Scale) -> str:
    """A start in a few lines."""
    parts = [f"round {one.t + 1}: {_clients(one)}"]
    parts += [f"why: {one.reason}"] if one.reason else []
    parts += [f"started from {one.source}"]
    parts += [f"clients' loss {-one.gain:+.3g} in their tests"] if one.gain is not None else []
    parts += [f"{scale.name} {scale.text(one.score)}"] if one.score is not None else []
    cost = cost_words(one.costs)
    return "<br>".join(map(escape, [*parts, f"cost: {cost}"] if cost != NONE else parts))


def _clients(one: StartEvent) -> str:
    back = f" ({one.moves.returned} returned)" if one.moves.returned else ""
    return f"{one.present:,} clients, +{one.moves.came:,}{back} \N{MINUS SIGN}{one.moves.left:,}"


def cost_words(costs: Mapping[str, float]) -> str:
    """What clients' gradient rounds and tests took."""
    both = {"bytes": (costs.get("bytes_up", 0) + costs.get("bytes_down", 0)) / 1e6, **costs}
    said = [f"{both[key]:,.3g} {unit}" for key, unit in COSTS.items() if both.get(key)]
    return ", ".join(said) or NONE


def story_rows(told: Sequence[Story], scale: Scale) -> list[StoryRow]:
    """Every start of every setting in the order of rounds, or the first ones of very many."""
    listed = sorted(_rows(told, scale), key=lambda row: (row.round, row.number))
    return listed[:MOST]


def _rows(told: Sequence[Story], scale: Scale) -> Iterator[StoryRow]:
    for story in told:
        for one in story.events:
            yield StoryRow(
                story.row.number,
                story.row.name,
                one.t + 1,
                one.present,
                one.moves,
                one.reason or NONE,
                one.source,
                NONE if one.gain is None else f"{-one.gain:+.3g}",
                NONE if one.score is None else scale.text(one.score),
                NONE if one.beyond is None else f"{scale.factor * one.beyond:+.3g}",
                cost_words(one.costs),
            )
