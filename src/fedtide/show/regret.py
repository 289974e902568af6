"""Regrets of starts: a table for the terminal, numbers, and a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedtide.record.files import write_json, write_text
from fedtide.show.report.colours import look

if TYPE_CHECKING:
    from fedtide.measure.regret import StudyRegret


def regret_table(found: Sequence[StudyRegret]) -> Iterator[Table | Text]:
    """For every problem the mean regret of each start, and how often it was best."""
    for one in found:
        title = f"{one.problem}: " if one.problem else ""
        forks = sum(len(run.forks) for run in one.runs.values())
        if not forks:
            yield Text(f"{title}the run of {one.starts[0]} has no start after the first one.")
            continue
        yield Text(f"{title}{forks} changes with a start, run of {one.starts[0]}", style="bold")
        table = Table(box=None, pad_edge=False)
        table.add_column("start")
        for column in ("regret", "worst", "best at"):
            table.add_column(column, justify="right")
        for name, values, worst, best in rows(one):
            form = ".1f" if one.scale.is_accuracy else ".3g"
            spread = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
            mean = f"{fmean(values):{form}}{spread}" if values else "–"  # noqa: RUF001
            table.add_row(name, mean, f"{worst:{form}}", f"{best:.0%}")
        yield table


def rows(one: StudyRegret) -> Iterator[tuple[str, list[float], float, float]]:
    """Name, mean regret of each seed, worst regret, and share of changes at which a start was best."""
    regrets = [fork.regrets for run in one.runs.values() for fork in run.forks]
    for number, (name, values) in enumerate(zip(one.starts, one.totals, strict=True)):
        own = [each[number] for each in regrets]
        worst = one.scale.factor * max(own, default=0.0)
        best = fmean(regret == 0 for regret in own) if own else 0.0
        yield name, values, worst, best


def write_regret(found: Sequence[StudyRegret], place: Path) -> Path:
    """Write numbers and chart into the next folder `fork-<number>` of a study."""
    place.mkdir(parents=True, exist_ok=True)
    number = 1 + sum(1 for _ in place.glob("fork-*"))
    while True:
        folder = place / f"fork-{number}"
        try:
            folder.mkdir()
            break
        except FileExistsError:
            number += 1
    write_json(folder / "regret.json", [one.summary() for one in found])
    write_text(folder / "regret.html", chart(found))
    return folder


def chart(found: Sequence[StudyRegret]) -> str:
    """The regret summed up over the changes, for every start: a page with one figure per problem."""
    from plotly.graph_objects import Figure

    parts = []
    for number, one in enumerate(found):
        figure = Figure(traces(one))
        unit = "points" if one.scale.is_accuracy else one.scale.name
        title = (
            f"{one.problem}: run of {one.starts[0]}" if one.problem else f"Run of {one.starts[0]}"
        )
        figure.update_layout(
            title=f"{title}, mean over the seeds",
            xaxis_title="round of the change",
            yaxis_title=f"regret so far ({unit})",
            template="plotly_white",
            height=420,
        )
        parts.append(figure.to_html(full_html=False, include_plotlyjs=number == 0))
    body = "\n".join(parts)
    return f'<!doctype html>\n<meta charset="utf-8">\n<title>Regret of starts</title>\n{body}\n'


def traces(one: StudyRegret) -> list[dict[str, Any]]:
    """Lines of the summed regret over the rounds of changes, the mean over the seeds at every change."""
    rounds = sorted({fork.t for run in one.runs.values() for fork in run.forks})
    lines = []
    for number, name in enumerate(one.starts):
        total = [
            fmean(
                one.scale.factor * sum(fork.regrets[number] for fork in run.forks if fork.t <= t)
                for run in one.runs.values()
            )
            for t in rounds
        ]
        style = look(number)
        lines.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [t + 1 for t in rounds],
                "y": total,
                "line": {"color": style.colour, "dash": style.plotly_dash},
            }
        )
    return lines
