"""The columns of a study's result table, in the terminal, in the report and in `fedtide table`.

`result_columns` decides which columns a study has, `marked` which of their values are the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fedtide.core.errors import choices, require
from fedtide.measure.results import ResultRow, Results, SeedSpread
from fedtide.measure.scale import ACCURACY, Scale

NONE = "–"  # noqa: RUF001 (a dash, where there is no number)


class Entry(NamedTuple):
    """One cell of a table."""

    text: str
    best: bool = False
    published: str = ""  # the paper's number and the difference, if the study has it


class Column(NamedTuple):
    """A metric as tables show it."""

    metric: str
    title: str
    short: str  # the title in a terminal, whose lines are short
    best: Callable[[Sequence[float]], float] | None  # max or min; None: no value is the best
    text: Callable[[SeedSpread], str]


def percent(value: SeedSpread) -> str:
    """A fraction in percent, with its standard deviation if there are several seeds."""
    spread = f" ± {100 * value.std:.1f}" if value.seeds > 1 else ""
    return f"{100 * value.mean:.1f}{spread}"


def amount(value: SeedSpread) -> str:
    """A count or a cost, with its standard deviation if there are several seeds."""
    spread = f" ± {_digits(value.std, value.mean)}" if value.seeds > 1 else ""
    return f"{mean_alone(value)}{spread}"


def mean_alone(value: SeedSpread) -> str:
    """A count or a cost, without its standard deviation."""
    return _digits(value.mean, value.mean)


def megabytes(value: SeedSpread) -> str:
    """Bytes as megabytes."""
    return f"{value.mean / 1e6:,.2f}"


def _digits(number: float, scale: float) -> str:
    """One decimal; numbers of a scale below one get three significant digits of that scale."""
    size = math.floor(math.log10(scale)) if 0 < scale < 1 else 1  # of the first digit
    return f"{number:,.{2 - size}f}"


def measured(value: SeedSpread) -> str:
    """A score that is no share, with its standard deviation if there are several seeds."""
    spread = f" ± {value.std:.2g}" if value.seeds > 1 else ""
    return f"{value.mean:.4g}{spread}"


def score_column(scale: Scale, when: str, title: str, short: str) -> Column:
    """A column of the score, or of what it comes to over the rounds."""
    unit, sign = (" (%)", " %") if scale.is_accuracy else ("", "")
    text = percent if scale.is_accuracy else measured
    best = max if scale.larger else min
    return Column(scale.metric(when), title + unit, short + sign, best, text)


def columns(scales: Sequence[Scale]) -> list[Column]:
    """Every column that a study with these scores may have."""
    scale, *others = scales
    name = scale.name
    after = (
        "after a change of clients" if scale.is_accuracy else f"{name} after a change of clients"
    )
    named = [
        Column(other.name, other.name, other.name, max if other.larger else min, measured)
        for other in others
        if not other.is_accuracy
    ]
    if not scale.is_accuracy:
        named.append(score_column(ACCURACY, "", "accuracy", "accuracy"))
    return [
        score_column(scale, "transition_", after, "after\nchanges"),
        *RECOVERY,
        score_column(scale, "", name, name),
        score_column(scale, "best_", f"best {name}", "best"),
        score_column(scale, "mean_", "mean over all rounds", "all\nrounds"),
        *named,
        *client_columns(scale),
        *OTHERS,
    ]


def client_columns(scale: Scale) -> Iterator[Column]:
    """Columns of the score of clients on their own test examples."""
    named = {
        "client_mean": ("mean of clients", "clients"),
        "client_worst": ("worst tenth of clients", "worst\ntenth"),
        "personal_mean": ("mean of clients after fine-tuning", "tuned\nclients"),
        "personal_worst": ("worst tenth after fine-tuning", "tuned\nworst"),
        "proxy_client_mean": ("mean of clients (proxy)", "clients\n(proxy)"),
        "proxy_client_worst": ("worst tenth of clients (proxy)", "worst\n(proxy)"),
    }
    unit = " (%)" if scale.is_accuracy else ""
    text = percent if scale.is_accuracy else measured
    for metric, (title, short) in named.items():
        yield Column(metric, title + unit, short, max if scale.larger else min, text)


RECOVERY = (
    Column("recovery_rounds", "rounds to recover", "rounds to\nrecover", min, amount),
    Column("recovery_seconds", "simulated s to recover", "seconds to\nrecover", min, amount),
    Column("recovery_joules", "joules to recover", "joules to\nrecover", min, amount),
    Column("recovery_bytes", "traffic to recover (MB)", "MB to\nrecover", min, megabytes),
    Column("waiting_rounds", "rounds that clients wait", "rounds\nwaited", min, amount),
    Column("unserved", "clients left unserved (%)", "unserved %", min, percent),
    Column("start_bytes", "traffic of starts (MB)", "MB of\nstarts", min, megabytes),
    Column("start_seconds", "simulated s of starts", "seconds\nof starts", min, mean_alone),
    Column("start_joules", "joules of starts", "joules\nof starts", min, mean_alone),
)
OTHERS = (
    Column("rounds_to_target", "rounds to {target}", "rounds\nto {target}", min, amount),
    Column("seconds_to_target", "simulated s to {target}", "seconds\nto {target}", min, amount),
    Column("joules_to_target", "joules to {target}", "joules\nto {target}", min, amount),
    Column("snapshot_share", "snapshot rounds (%)", "snapshots %", None, percent),
    Column("undefended_rounds", "rounds without defence", "without\ndefence", min, amount),
    Column("epsilon", "privacy (epsilon)", "epsilon", min, amount),
    Column("simulated_epsilon", "privacy (simulated epsilon)", "simulated\nepsilon", min, amount),
    Column("bytes_up", "uploaded (MB)", "MB up", min, megabytes),
    Column("latency", "simulated time (s)", "network\nseconds", min, mean_alone),
    Column("joules", "energy (J)", "joules", min, mean_alone),
    Column("wall_seconds", "wall time (s)", "seconds", None, mean_alone),
)
ON_REQUEST = (  # metrics that only tables with chosen columns show
    Column("loss", "test loss", "loss", min, measured),
    Column("accumulated_gain", "gain of the reference", "gain", None, measured),
    Column("waiting_seconds", "simulated s that clients wait", "seconds\nwaited", min, amount),
    Column("client_spread", "spread over clients", "client\nspread", min, measured),
    Column("personal_spread", "spread after fine-tuning", "tuned\nspread", min, measured),
    Column("personal_gain", "gain of fine-tuning", "tuning\ngain", max, measured),
    Column("starts", "starts", "starts", None, amount),
    Column("gradient_rounds", "gradient rounds", "gradient\nrounds", min, amount),
    Column("broadcasts", "broadcasts", "broad-\ncasts", min, amount),
    Column("uploads", "uploads", "uploads", min, amount),
    Column("bytes_down", "downloaded (MB)", "MB down", min, megabytes),
    Column("steps", "local steps", "steps", min, amount),
    Column("stragglers", "stragglers", "strag-\nglers", min, amount),
    Column("stored_floats", "stored numbers", "stored", min, amount),
)
MAY_BE_ZERO = {  # left out if zero for every setting
    "latency",
    "joules",
    "undefended_rounds",
    "unserved",
    "start_bytes",
    "start_seconds",
    "start_joules",
}
WAITS = {"waiting_rounds", "unserved"}
TO_TARGET = {"rounds_to_target", "seconds_to_target", "joules_to_target"}


def check_columns(names: Sequence[str], scales: Sequence[Scale]) -> None:
    """Raise a `ConfigError` unless these are metrics that tables of a study can show."""
    known = [column.metric for column in (*columns(scales), *ON_REQUEST)]
    for name in names:
        require(name in known, "columns", "metrics of a study", name, choices(name, known))


def result_columns(results: Results) -> list[Column]:
    """The columns that the study names, else the metrics that say something about it."""
    known = columns(results.scales)
    if results.columns:
        check_columns(results.columns, results.scales)
        by_metric = {column.metric: column for column in (*known, *ON_REQUEST)}
        chosen = [by_metric[name] for name in results.columns]
    else:
        hidden = _hidden(results)
        chosen = [c for c in known if c.metric not in hidden and _is_known(results.rows, c.metric)]
    target = results.scale.aim(results.target) if results.target else "the target"
    return [
        column._replace(
            title=column.title.format(target=target), short=column.short.format(target=target)
        )
        for column in chosen
    ]


def _hidden(results: Results) -> set[str]:
    """Metrics that say nothing about this study, or say what others say better."""
    rows, scale = results.rows, results.scale
    hidden: set[str] = set()
    if any(scale.metric("transition_") in row.numbers for row in rows):
        hidden |= {scale.metric("best_")}  # sessions with different clients are not comparable
    else:
        hidden |= {scale.metric("mean_")}  # one session: rounds to a target say more
    if all(_waits_as_it_recovers(row) for row in rows):
        hidden |= WAITS
    if len(rows) == 1:
        hidden |= TO_TARGET  # nothing to compare with
    elif results.target:
        hidden |= {"latency", "joules"}  # the costs to the target say more than those of the run
    return hidden


def _waits_as_it_recovers(row: ResultRow) -> bool:
    """Do clients wait as long as a run recovers, since all of them come with a start?"""
    waited, recovered = (row.numbers.get(f"{name}_rounds") for name in ("waiting", "recovery"))
    if waited is None or recovered is None:
        return waited is None
    return math.isclose(waited.mean, recovered.mean)


def _is_known(rows: Sequence[ResultRow], metric: str) -> bool:
    known = [row.numbers[metric].mean for row in rows if metric in row.numbers]
    return any(known) if metric in MAY_BE_ZERO else bool(known)


def marked(
    rows: Sequence[ResultRow], column: Column, values: Sequence[SeedSpread | None] | None = None
) -> list[Entry]:
    """The entries of a column for these rows; `values` are the column's metric unless given.

    The best are those that read like the best value among rows with a finished run; none is, if all of
    these read alike.
    """
    if values is None:
        values = [row.numbers.get(column.metric) for row in rows]
    texts = [column.text(value) if value else NONE for value in values]
    means = {v.mean: _mean(t) for r, v, t in zip(rows, values, texts, strict=True) if v and r.final}
    differ = len(set(means.values())) > 1
    top = means[column.best(list(means))] if column.best and differ else None
    return [
        Entry(text, row.final and _mean(text) == top) for row, text in zip(rows, texts, strict=True)
    ]


def _mean(text: str) -> str:
    """A number as it is shown, without its standard deviation."""
    return text.partition(" ±")[0]
