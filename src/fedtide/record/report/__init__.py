"""The report: one HTML file that shows a study, computed from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from fedtide.record.folder import StudyFolder, write_text
from fedtide.record.report.charts import charts, shown
from fedtide.record.report.clients import client_charts
from fedtide.record.report.fairness import fairness_charts
from fedtide.record.report.headline import headline
from fedtide.record.report.numbers import Results, results
from fedtide.record.report.sessions import common_spans
from fedtide.record.report.tables import comparisons, result_table, transition_table, unfinished

__all__ = ["write_report"]


def write_report(folder: StudyFolder) -> Path:
    """Write report.html into the folder of a study, whole or killed half-way."""
    path = folder.path / "report.html"
    write_text(path, page(folder))
    return path


def page(folder: StudyFolder) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=PackageLoader("fedtide.record", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = results(folder)
    source = folder.path / "study.toml"
    drawn = [*charts(found.rows), *client_charts(found.rows), *fairness_charts(found.rows)]
    visible = shown(found.rows)
    return environment.get_template("page.html.jinja").render(
        about=found.about,
        headline=headline(found),
        unfinished=unfinished(found),
        table=result_table(found),
        transitions=transition_table(found),
        comparisons=comparisons(found),
        facts=facts(found),
        charts=drawn,
        figures={chart.key: chart.figure for chart in drawn},
        legend=sorted(
            ((row.number not in visible, row) for row in found.rows if row.runs),
            key=lambda entry: entry[0],
        ),
        source=source.read_text(encoding="utf-8") if source.exists() else "",
        plotly=Markup(get_plotlyjs()),  # not escaped: Plotly's own file
    )


def facts(found: Results) -> dict[str, Any]:
    """What was run, and where."""
    spans = common_spans(found.rows)
    rounds = {len(lines) for row in found.rows for lines in row.runs.values()}
    seeds = ", ".join(map(str, found.seeds))
    listed = {
        "Settings compared": len(found.rows),
        "Seeds": f"{len(found.seeds)} ({seeds})",
        "Rounds": _range(rounds),
        "Sessions": len(spans) if spans and len(spans) > 1 else "",
        "Clients at a time": _range({n for span in spans or [] for n in span.populations}),
        "Engine": "; ".join(found.engines),
    }
    environment = found.about.get("environment", {})
    return {name: value for name, value in {**listed, **environment}.items() if value}


def _range(numbers: set[int]) -> str:
    """`15`, or `3 to 15`."""
    return (
        " to ".join(str(n) for n in dict.fromkeys([min(numbers), max(numbers)])) if numbers else ""
    )
