"""The report: one HTML file that shows a study's results, made from the study's folder alone."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from fedtide.measure.cautions import empty_rounds
from fedtide.measure.results import ResultRow, Results
from fedtide.measure.targets import COSTS
from fedtide.record.files import write_text
from fedtide.record.folder import StudyFolder
from fedtide.show.columns import result_columns
from fedtide.show.report.changes import change_charts, recovery_words
from fedtide.show.report.charts import (
    AT_CAP,
    AT_FLOOR,
    RATE,
    Chart,
    Section,
    charts,
    varying,
)
from fedtide.show.report.clients import client_charts
from fedtide.show.report.costs import cost_charts
from fedtide.show.report.fairness import fairness_charts
from fedtide.show.report.headline import headline
from fedtide.show.report.own_tests import own_test_charts
from fedtide.show.report.pairs import pair_notes, pair_rows, rank_charts
from fedtide.show.report.population import moves_chart, population_charts
from fedtide.show.report.rows import ChartRow, Figure, chart_rows, shown
from fedtide.show.report.sessions import common_spans
from fedtide.show.report.story import Story, start_charts, stories, story_rows
from fedtide.show.report.tables import comparisons, result_table, transition_table, unfinished
from fedtide.show.report.tuning import search_charts, search_rows
from fedtide.show.tables import results_csv, rounds_csv

__all__ = ["write_report"]

CHECKSUM = 8  # digits of a checksum that are shown
CHECKSUMS = re.compile(r"[0-9a-f]{32}")
CSV_ROUNDS = 8_000  # lines of rounds.csv inside the page; with more, some rounds are left out


def write_report(folder: StudyFolder, found: Results | None = None) -> Path:
    """Write report.html into the folder of a study that has ended, is running or was broken off.

    `found` are its results, if they were read before.
    """
    path = folder.path / "report.html"
    source = folder.path / "study.toml"
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    write_text(path, page(found or Results.read(folder), text))
    return path


def page(found: Results, source: str) -> str:
    """The report as HTML; `source` is the study file."""
    environment = Environment(
        loader=PackageLoader("fedtide.show", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = chart_rows(found.rows)
    told = stories(found, rows)
    drawn = sections(found, rows, told)
    return environment.get_template("page.html.jinja").render(
        about=found.about,
        cautions=found.cautions,
        headline=headline(found),
        unfinished=unfinished(found),
        table=result_table(found),
        score=found.scale.name,
        score_title=found.scale.title,
        larger=found.scale.larger,
        changes=any(found.scale.metric("transition_") in row.numbers for row in found.rows),
        transitions=transition_table(found),
        looks={row.number: row.look for row in rows},
        recovered=recovery_words(found),
        story=story_rows(told, found.scale),
        starts=sum(len(one.events) for one in told),
        pairs=pair_rows(found),
        pair_notes=pair_notes(found),
        comparisons=comparisons(found),
        search=found.search,
        search_rows=search_rows(found.search, rows),
        **_explained(found),
        sections=drawn,
        figures={chart.key: _figure(chart) for part in drawn for chart in part.charts},
        legend=_legend(rows),
        source=source,
        plotly=plotly() if drawn else "",
        **_downloads(found),
    )


def _legend(rows: Sequence[ChartRow]) -> list[tuple[bool, ChartRow]]:
    """Every setting with a run, and whether charts hide it at first; those that are shown come first."""
    visible = shown(rows)
    return sorted(
        ((row.number not in visible, row) for row in rows if row.runs), key=lambda entry: entry[0]
    )


def _downloads(found: Results) -> dict[str, Any]:
    """The CSV files inside the page; of a large study only every `stride`-th round."""
    runs = _runs(found.rows)
    stride = -(-sum(map(len, runs)) // CSV_ROUNDS) or 1
    return {
        "results_csv": packed(results_csv(found)),
        "rounds_csv": packed(rounds_csv(found, stride)) if runs else "",
        "stride": stride,
    }


def sections(found: Results, rows: Sequence[ChartRow], told: Sequence[Story]) -> list[Section]:
    """Every chart that has something to show, by the question it answers."""
    changes = [*start_charts(found, told), *change_charts(rows, recovery_words(found))]
    made = (
        Section("Over several problems", rank_charts(found.ranks)),
        Section("Over the rounds", charts(rows)),
        Section("When clients change", [*moves_chart(rows), *changes]),
        Section(
            "Clients", [*population_charts(rows), *own_test_charts(rows), *fairness_charts(rows)]
        ),
        Section(
            "How clients train", [*varying(rows, (RATE, AT_FLOOR, AT_CAP)), *client_charts(rows)]
        ),
        Section("Costs", cost_charts(rows)),
        Section("How settings were chosen", search_charts(found.search, rows)),
    )
    return [section for section in made if section.charts]


@cache
def plotly() -> str:
    """The JavaScript of Plotly, packed: two megabytes instead of five."""
    return packed(get_plotlyjs())


def packed(text: str) -> str:
    """A text as gzip in base64, which the page unpacks when it needs it."""
    return b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")


def _figure(chart: Chart) -> Figure:
    """A figure as the page's script expects it."""
    return chart.figure | {"choices": [list(choice.data) for choice in chart.choices]}


def _runs(rows: Sequence[ResultRow]) -> list[list[Any]]:
    return [lines for row in rows for lines in row.runs.values()]


def facts(found: Results) -> dict[str, Any]:
    """What was run and on which machine, by name."""
    spans = common_spans(found.rows)
    rounds = {len(lines) for row in found.rows for lines in row.runs.values()}
    seeds = ", ".join(map(str, found.seeds))
    listed = {
        "Settings compared": len(found.rows),
        "Seeds": f"{len(found.seeds)} ({seeds})",
        "Rounds": _range(rounds),
        "Rounds without a client": sum(map(empty_rounds, _runs(found.rows))),
        "Sessions": len(spans) if spans and len(spans) > 1 else "",
        "Clients at a time": _range({n for span in spans or [] for n in span.populations}),
        "Engine": "; ".join(found.engines),
    }
    environment = found.about.get("environment", {})
    return {name: value for name, value in {**listed, **environment}.items() if value}


def _explained(found: Results) -> dict[str, Any]:
    """What the numbers are about and what made them."""
    return {"facts": facts(found), "aim": _aim(found), "made": made_rows(found)}


def _aim(found: Results) -> str:
    """What the table says about the score to reach, if it does."""
    shown = any(column.metric in COSTS for column in result_columns(found))
    if not (shown and found.target):
        return ""
    known = (
        "a setting has a number if all its seeds do"
        if found.about.get("target")
        else "every run does"
    )
    return (
        f"Rounds to {found.scale.aim(found.target)}: until the first test that reaches it; {known}."
    )


class MadeRows(NamedTuple):
    """What made the results of every setting, one column for each kind of origin."""

    keys: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


def made_rows(found: Results) -> MadeRows:
    """Versions and checksums by setting; checksums are cut to what tells them apart."""
    keys = list(dict.fromkeys(key for row in found.rows for key in row.made_by))
    rows = [
        (
            found.name(row),
            [" and ".join(map(_cut, row.made_by.get(k, "").split(" and "))) for k in keys],
        )
        for row in found.rows
        if row.made_by
    ]
    return MadeRows([key.replace("_", " ") for key in keys], rows)


def _cut(value: str) -> str:
    return value[:CHECKSUM] if CHECKSUMS.fullmatch(value) else value


def _range(numbers: set[int]) -> str:
    """`15`, or `3 to 15`."""
    return (
        " to ".join(str(n) for n in dict.fromkeys([min(numbers), max(numbers)])) if numbers else ""
    )
