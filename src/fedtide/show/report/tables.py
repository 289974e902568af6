"""Tables of a report: every cell as the text it shows, with published numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.measure.recovery import fits
from fedtide.measure.results import ResultRow, Results
from fedtide.record.folder import word
from fedtide.show.columns import NONE, Entry, marked, percent, result_columns, score_column

READABLE = 20  # columns


class TableRow(NamedTuple):
    """A setting in words and its entries."""

    number: int  # of the setting
    label: str
    words: Sequence[str]
    entries: Sequence[Entry]
    pending: bool  # numbers of unfinished runs, or none yet


class ResultTable(NamedTuple):
    """Head and rows; the settings come first."""

    keys: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[TableRow]


class Comparison(NamedTuple):
    """A published number beside ours."""

    label: str
    metric: str
    ours: str
    published: str
    difference: str
    source: str


def result_table(results: Results) -> ResultTable:
    """One row per setting, the best number of each column marked, published ones beside ours."""
    rows, columns = results.rows, result_columns(results)
    entries = [
        [
            entry._replace(published=_published(results, row, column.metric))
            for row, entry in zip(rows, marked(rows, column), strict=True)
        ]
        for column in columns
    ]
    titles = [column.title for column in columns]
    if unfinished(results):
        seeds = [Entry(f"{len(row.finished)} of {len(results.seeds)}") for row in rows]
        titles, entries = [*titles, "runs finished"], [*entries, seeds]
    return _table(results, titles, entries)


def transition_table(results: Results) -> ResultTable | None:
    """The score after each change of clients, if there were several but not too many to read."""
    count = max((len(row.transitions) for row in results.rows), default=0)
    if not 2 <= count <= READABLE:
        return None
    titles, entries = [f"start {number + 2}" for number in range(count)], []
    for number, title in enumerate(titles):
        values = [dict(enumerate(row.transitions)).get(number) for row in results.rows]
        column = score_column(results.scale, "transition_", title, title)
        entries.append(marked(results.rows, column, values))
    return _table(results, titles, entries)


def unfinished(results: Results) -> str:
    """How many runs of the study are finished; empty if all are."""
    total = len(results.rows) * len(results.seeds)
    done = sum(len(row.finished) for row in results.rows)
    begun = sum(len(row.runs) for row in results.rows)
    if done == total:
        return ""
    return (
        f"This study is not finished: of {total} runs, {done} finished, "
        f"{begun - done} stopped before their end, {total - begun} did not begin."
    )


def comparisons(results: Results) -> list[Comparison]:
    """Published numbers beside ours; those that fit no setting come last, without ours."""
    found = []
    for published in results.about.get("published", []):
        rows = [row for row in results.rows if fits(published.get("settings", {}), row.settings)]
        known = [_compared(row, published, results.name(row)) for row in rows]
        found += known or [_compared(None, published)]
    return sorted(found, key=lambda comparison: comparison.ours == NONE)


def _table(
    results: Results, titles: Sequence[str], columns: Sequence[Sequence[Entry]]
) -> ResultTable:
    keys = results.keys
    rows = [
        TableRow(
            row.number,
            row.label,
            [row.words.get(key, NONE) for key in keys],
            [column[place] for column in columns],
            not row.final,
        )
        for place, row in enumerate(results.rows)
    ]
    return ResultTable(keys, titles, rows)


def _published(results: Results, row: ResultRow, metric: str) -> str:
    """`published 88.2 (-3.9)`, from the first published number that fits a setting."""
    for published in results.about.get("published", []):
        named = published.get("settings", {})
        if _metric(published) == metric and fits(named, row.settings):
            found = _compared(row, published)
            return f"published {found.published} ({found.difference})"
    return ""


def _metric(published: Mapping[str, Any]) -> str:
    return str(published.get("metric", "accuracy"))


def _compared(row: ResultRow | None, published: Mapping[str, Any], name: str = "") -> Comparison:
    metric = _metric(published)
    is_share = metric.endswith("accuracy")
    ours = row.numbers.get(metric) if row else None
    paper = value if isinstance(value := published.get("value"), int | float) else None
    label = name or ", ".join(_pairs(published.get("settings", {})))
    return Comparison(
        label + ("" if row is None or row.final else " (so far)"),
        metric.replace("_", " ") + (" (%)" if is_share else ""),
        NONE if ours is None else percent(ours) if is_share else f"{ours.mean:.4g}",
        NONE if paper is None else f"{100 * paper:.1f}" if is_share else f"{paper:.4g}",
        NONE if paper is None or ours is None else _difference(ours.mean - paper, is_share),
        str(published.get("source", "")),
    )


def _difference(gap: float, is_share: bool) -> str:
    """With its sign; for accuracies in percentage points."""
    return f"{round(100 * gap, 1) + 0.0:+.1f}" if is_share else f"{gap:+.4g}"


def _pairs(settings: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key} = {word(value)}" for key, value in settings.items())
