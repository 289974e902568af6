"""Tables of a report: every cell of a table as the text it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.measure.results import Results, Row, Spread
from fedtide.record.folder import word
from fedtide.show.report.colours import Look

NONE = "–"  # noqa: RUF001 (a dash, where there is no number)
READABLE = 20  # columns

Best = Callable[[Sequence[float]], float]


class Entry(NamedTuple):
    """One cell of a table."""

    text: str
    best: bool = False
    published: str = ""  # the paper's number and the difference, if the study has it


class TableRow(NamedTuple):
    """A setting in words and its entries."""

    look: Look
    label: str
    words: Sequence[str]
    entries: Sequence[Entry]
    pending: bool  # numbers of unfinished runs, or none yet


class Table(NamedTuple):
    """Head and rows; the settings come first."""

    keys: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[TableRow]


class Column(NamedTuple):
    """A metric as the table shows it."""

    metric: str
    title: str
    best: Best | None  # None: not a contest
    text: Callable[[Spread], str]


class Comparison(NamedTuple):
    """A published number beside ours."""

    label: str
    metric: str
    ours: str
    published: str
    difference: str
    source: str


def percent(value: Spread) -> str:
    """A fraction in percent, with its spread if there are several seeds."""
    spread = f" ± {100 * value.std:.1f}" if value.seeds > 1 else ""
    return f"{100 * value.mean:.1f}{spread}"


def _megabytes(value: Spread) -> str:
    return f"{value.mean / 1e6:,.2f}"


def _amount(value: Spread) -> str:
    """A count or a cost, with its spread if there are several seeds."""
    spread = f" ± {_figures(value.std, value.mean)}" if value.seeds > 1 else ""
    return f"{_figures(value.mean, value.mean)}{spread}"


def _figures(number: float, scale: float) -> str:
    """One decimal; for things smaller than one as many as three figures of them need."""
    size = math.floor(math.log10(scale)) if 0 < scale < 1 else 1  # of the first figure
    return f"{number:,.{2 - size}f}"


def _seconds(value: Spread) -> str:
    return _figures(value.mean, value.mean)


COLUMNS = (
    Column("transition_accuracy", "after a change of clients (%)", max, percent),
    Column("recovery_rounds", "rounds to recover", min, _amount),
    Column("accuracy", "accuracy (%)", max, percent),
    Column("best_accuracy", "best accuracy (%)", max, percent),
    Column("rounds_to_target", "rounds to {target}", min, _amount),
    Column("seconds_to_target", "simulated s to {target}", min, _amount),
    Column("joules_to_target", "joules to {target}", min, _amount),
    Column("snapshot_share", "snapshot rounds (%)", None, percent),
    Column("undefended_rounds", "rounds without defence", min, _amount),
    Column("epsilon", "privacy (epsilon)", min, _amount),
    Column("simulated_epsilon", "privacy (simulated epsilon)", min, _amount),
    Column("bytes_up", "uploaded (MB)", min, _megabytes),
    Column("latency", "simulated time (s)", min, _seconds),
    Column("joules", "energy (J)", min, _seconds),
    Column("wall_seconds", "wall time (s)", None, _seconds),
)
MAY_BE_NOTHING = {"latency", "joules", "undefended_rounds"}  # often all zero


def result_columns(results: Results) -> list[Column]:
    """The metrics that tell something about this study."""
    rows = results.rows
    changes = any("transition_accuracy" in row.numbers for row in rows)
    hidden = {"best_accuracy"} if changes else set()  # of other clients in other sessions
    to_target = {"rounds_to_target", "seconds_to_target", "joules_to_target"}
    hidden |= to_target if len(rows) == 1 else set()
    if results.target and len(rows) > 1:
        hidden |= {"latency", "joules"}  # of the whole run, which says less
    target = f"{100 * results.target:.0f} %" if results.target else ""
    return [
        column._replace(title=column.title.format(target=target))
        for column in COLUMNS
        if column.metric not in hidden and _is_there(rows, column.metric)
    ]


def _is_there(rows: Sequence[Row], metric: str) -> bool:
    known = [row.numbers[metric].mean for row in rows if metric in row.numbers]
    return any(known) if metric in MAY_BE_NOTHING else bool(known)


def result_table(results: Results) -> Table:
    """One row per setting, the best number of each column marked, published ones beside ours."""
    rows, columns = results.rows, result_columns(results)
    entries = []
    for column in columns:
        marked = _marked(rows, [row.numbers.get(column.metric) for row in rows], column)
        entries.append(
            [
                entry._replace(published=_published(results, row, column.metric))
                for row, entry in zip(rows, marked, strict=True)
            ]
        )
    seeds = [Entry(f"{len(row.finished)} of {len(results.seeds)}") for row in rows]
    titles = [c.title for c in columns]
    if unfinished(results):
        titles, entries = [*titles, "runs finished"], [*entries, seeds]
    return _table(results, titles, entries)


def transition_table(results: Results) -> Table | None:
    """Accuracy after each change of clients, if there were several but not too many to read."""
    count = max((len(row.transitions) for row in results.rows), default=0)
    if not 2 <= count <= READABLE:
        return None
    columns = [Column("", f"session {number + 2}", max, percent) for number in range(count)]
    entries = []
    for number, column in enumerate(columns):
        values = [dict(enumerate(row.transitions)).get(number) for row in results.rows]
        entries.append(_marked(results.rows, values, column))
    return _table(results, [column.title for column in columns], entries)


def unfinished(results: Results) -> str:
    """How much of the study is there; empty if all of it."""
    total = len(results.rows) * len(results.seeds)
    done = sum(len(row.finished) for row in results.rows)
    begun = sum(len(row.runs) for row in results.rows)
    if done == total:
        return ""
    return (
        f"This study is not finished: of {total} runs, {done} came to their end, "
        f"{begun - done} stopped on the way, {total - begun} did not begin."
    )


def comparisons(results: Results) -> list[Comparison]:
    """Published numbers beside ours; those that fit no setting come last, without ours."""
    found = []
    for published in results.about.get("published", []):
        rows = [row for row in results.rows if _fits(published.get("settings", {}), row.settings)]
        found += [_compared(row, published) for row in rows] or [_compared(None, published)]
    return sorted(found, key=lambda comparison: comparison.ours == NONE)


def _published(results: Results, row: Row, metric: str) -> str:
    """`published 88.2 (-3.9)`, from the first published number that fits a setting."""
    for published in results.about.get("published", []):
        named = published.get("settings", {})
        if _metric(published) == metric and _fits(named, row.settings):
            found = _compared(row, published)
            return f"published {found.published} ({found.difference})"
    return ""


def _metric(published: Mapping[str, Any]) -> str:
    return str(published.get("metric", "accuracy"))


def _table(results: Results, titles: Sequence[str], columns: Sequence[Sequence[Entry]]) -> Table:
    keys = results.keys
    rows = [
        TableRow(
            row.look,
            row.label,
            [row.words.get(key, NONE) for key in keys],
            [column[place] for column in columns],
            not row.final,
        )
        for place, row in enumerate(results.rows)
    ]
    return Table(keys, titles, rows)


def _marked(rows: Sequence[Row], values: Sequence[Spread | None], column: Column) -> list[Entry]:
    """Entries of a column; best are those that read like the best finished one, unless all do."""
    texts = [column.text(value) if value else NONE for value in values]
    means = {v.mean: _mean(t) for r, v, t in zip(rows, values, texts, strict=True) if v and r.final}
    is_contest = len(set(means.values())) > 1
    top = means[column.best(list(means))] if column.best and is_contest else None
    return [
        Entry(text, row.final and _mean(text) == top) for row, text in zip(rows, texts, strict=True)
    ]


def _mean(text: str) -> str:
    """A number as it is shown, without its spread."""
    return text.partition(" ±")[0]


def _fits(wanted: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Does a row have these settings? A table such as {kind = "x", R = 10} also fits "x"."""
    return all(key in settings and _same(value, settings[key]) for key, value in wanted.items())


def _same(wanted: Any, value: Any) -> bool:
    if isinstance(value, Mapping) and isinstance(wanted, str):
        return bool(wanted == value.get("kind"))
    return bool(wanted == value)


def _compared(row: Row | None, published: Mapping[str, Any]) -> Comparison:
    metric = _metric(published)
    is_share = metric.endswith("accuracy")
    ours = row.numbers.get(metric) if row else None
    theirs = value if isinstance(value := published.get("value"), int | float) else None
    label = row.label if row else ", ".join(_pairs(published.get("settings", {})))
    return Comparison(
        label + ("" if row is None or row.final else " (so far)"),
        metric.replace("_", " ") + (" (%)" if is_share else ""),
        NONE if ours is None else percent(ours) if is_share else f"{ours.mean:.4g}",
        NONE if theirs is None else f"{100 * theirs:.1f}" if is_share else f"{theirs:.4g}",
        NONE if theirs is None or ours is None else _difference(ours.mean - theirs, is_share),
        str(published.get("source", "")),
    )


def _difference(gap: float, is_share: bool) -> str:
    """With its sign; for accuracies in percentage points."""
    return f"{round(100 * gap, 1) + 0.0:+.1f}" if is_share else f"{gap:+.4g}"


def _pairs(settings: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key} = {word(value)}" for key, value in settings.items())
