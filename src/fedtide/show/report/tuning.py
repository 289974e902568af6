"""How the settings of a study were chosen: what was searched, what was found, how flat the optimum is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fedtide.measure.scale import Scale
from fedtide.measure.searched import ChosenSetting, Searched
from fedtide.record.folder import word
from fedtide.show.columns import NONE
from fedtide.show.report.charts import Chart, layout
from fedtide.show.report.rows import ChartRow, Figure, of_row, shown


class SearchRow(NamedTuple):
    """One setting that was searched for one method; what belongs to the method is in its first row."""

    method: str
    number: int  # of the row of the results; -1: the study has it no more
    key: str
    range: str
    value: str
    near: str
    score: str
    trials: str
    updates: str


def search_rows(search: Searched | None, rows: Sequence[ChartRow]) -> list[SearchRow]:
    """The rows of the table."""
    return list(_rows(search, rows)) if search else []


def _rows(search: Searched, rows: Sequence[ChartRow]) -> Iterator[SearchRow]:
    for method in search.methods:
        ends = [f"{n} {end}" for end in ("pruned", "diverged") if (n := method.count(end))]
        trials = f"{len(method.trials)}" + (f" ({', '.join(ends)})" if ends else "")
        score = NONE if method.score is None else _score(method.score, search.scale)
        known = [row.number for row in rows if row.settings == method.settings]
        first = (score, trials, f"{method.updates:,}")
        number = known[0] if known else -1
        if not method.choices:
            yield SearchRow(method.name, number, NONE, NONE, NONE, NONE, *first)
        for place, choice in enumerate(method.choices):
            said = (choice.key, choice.range, word(choice.value), choice.flatness)
            name, numbers = ("", ("", "", "")) if place else (method.name, first)
            yield SearchRow(name, number if not place else -1, *said, *numbers)


def _score(score: float, scale: Scale) -> str:
    return f"{100 * score:.1f}" if scale.is_accuracy else scale.text(scale.sign * score)


def search_charts(search: Searched | None, rows: Sequence[ChartRow]) -> list[Chart]:
    """The scores of all finished trials over each setting that was searched."""
    if not search:
        return []
    keys = dict.fromkeys(choice.key for method in search.methods for choice in method.choices)
    made = [_chart(search, rows, key) for key in keys]
    return [chart for chart in made if chart.figure["data"]]


def _chart(search: Searched, rows: Sequence[ChartRow], key: str) -> Chart:
    scale, is_share = search.scale, search.scale.is_accuracy
    factor = scale.sign * scale.factor
    by_settings = [(method.settings, c) for method in search.methods for c in method.choices]
    found = [
        (row, choice)
        for row in rows
        for settings, choice in by_settings
        if settings == row.settings and choice.key == key and choice.tried
    ]
    traces = [
        of_row(row, shown(rows))
        | {
            "x": [_shown(value) for value, _ in choice.tried],
            "y": [round(factor * score, 2 if is_share else 6) for _, score in choice.tried],
            "mode": "markers",
            "marker": {"color": row.look.colour, "size": 8},
            "hovertemplate": f"{key} = %{{x}}: " + ("%{y:.1f} %" if is_share else "%{y:.4g}"),
        }
        for row, choice in found
    ]
    name = (
        "score on validation examples (%)" if is_share else f"{scale.name} on validation examples"
    )
    drawn = layout(key, name)
    drawn["xaxis"] |= _axis([choice for _, choice in found])
    notes = ["One mark for each trial that finished."]
    figure: Figure = {"data": traces, "layout": drawn}
    return Chart(f"tuned_{key.replace('.', '_')}", f"Search for {key}", notes, figure)


def _axis(choices: Sequence[ChosenSetting]) -> dict[str, Any]:
    if any(isinstance(_shown(value), str) for choice in choices for value, _ in choice.tried):
        return {"type": "category"}
    return {"type": "log"} if any(choice.limits.get("log") for choice in choices) else {}


def _shown(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else word(value)
