"""Charts of changes of clients: how fast each setting recovers, and from which models sessions start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedtide.measure.results import Results
from fedtide.record.line import Line
from fedtide.show.report.charts import Chart, layout
from fedtide.show.report.heat import heat, heat_layout, varied
from fedtide.show.report.rows import (
    ChartRow,
    Figure,
    first_run,
    has_several_seeds,
    of_row,
    shown,
    stroke,
)

WRITTEN = 12  # sessions; with more, the cells are too small for numbers


def change_charts(rows: Sequence[ChartRow], recovered: str = "") -> list[Chart]:
    """Rounds to recover and weights of starts; empty if there was no start after the first one.

    `recovered` is the definition of rounds to recover.
    """
    return [*_recovery(rows, recovered), *_weights(rows), *_tests(rows)]


def recovery_words(results: Results) -> str:
    """The definition of rounds to recover, as the page prints it."""
    scale, rho = results.scale, f"{results.recovery.rho:.4g}"
    if len(results.rows) == 1:
        first = "the run"
    elif len(results.problems) > 1 and not results.recovery.reference:
        first = "the first method on the same problem"
    else:
        first = " or ".join(sorted({results.name(results.rows[n]) for n in results.references}))
    way = f"{rho} of" if scale.is_accuracy else f"{rho} of the way from the untrained model to"
    return (
        f"Recovered: at {way} the best {scale.name} that {first} reaches between one of its starts and the "
        "next; one round more than there are, if never."
    )


def _recovery(rows: Sequence[ChartRow], recovered: str) -> list[Chart]:
    traces = [trace for row in rows if (trace := _recovery_trace(row, shown(rows)))]
    drawn = layout("round of the start", "rounds to recover")
    drawn["xaxis"] |= {"tickformat": "d"}
    drawn["yaxis"] |= {"rangemode": "tozero"}
    means = any("lines" in trace["mode"] for trace in traces) and has_several_seeds(rows)
    seeds = "Mean over the seeds." if means else "A mark for each start of each seed."
    notes = [recovered, seeds] if has_several_seeds(rows) else [recovered]
    chart = Chart("recovery", "Rounds to recover", notes, {"data": traces, "layout": drawn})
    return [chart] if traces else []


def _recovery_trace(row: ChartRow, visible: set[int]) -> Figure | None:
    """Means if all seeds have the same windows, else a mark for every window of every seed."""
    found: dict[int, Sequence[float]] = {
        seed: rounds
        for seed, run in row.metrics.items()
        if isinstance(rounds := run.get("recovery_rounds"), list)
    }
    firsts = {seed: [window.first + 1 for window in row.windows.get(seed, ())] for seed in found}
    if sum(map(len, found.values())) < 2:
        return None
    alike = len({tuple(first) for first in firsts.values()}) == 1
    x = next(iter(firsts.values())) if alike else [t for first in firsts.values() for t in first]
    y = [s.mean for s in row.recoveries] if alike else [n for one in found.values() for n in one]
    return of_row(row, visible) | {
        "x": x,
        "y": [round(value, 2) for value in y],
        "mode": "lines+markers" if alike else "markers",
        "line": stroke(row.look),
        "marker": {"color": row.look.colour, "size": 7},
        "hovertemplate": "start in round %{x}: %{y:.1f} rounds",
    }


def _weights(rows: Sequence[ChartRow]) -> list[Chart]:
    """mu_{s,z}: the weight of the model of session z in the start of session s."""

    def draw(row: ChartRow) -> Figure | None:
        lines = first_run(row)[1]
        mixed = [line for line in lines if line.get("start_from")]
        if not mixed:
            return None
        sessions = {line["start"]: line["session"] + 1 for line in lines if "start" in line}
        earlier = sorted({number for line in mixed for number in line["start_from"]})
        z = np.full((len(mixed), len(earlier)), np.nan)
        for place, line in enumerate(mixed):
            columns = [earlier.index(number) for number in line["start_from"]]
            z[place, columns] = line["start_weights"]
        x = [str(sessions.get(number, number + 1)) for number in earlier]
        y = [str(line["session"] + 1) for line in mixed]
        hover = "start of session %{y}: session %{x} has weight %{z:.3f}"
        written = {"texttemplate": "%{z:.2f}"} if len(mixed) <= WRITTEN else {}
        return heat(z, x, y, hover) | written

    drawn = heat_layout(
        "earlier session z whose model is mixed in", "start of session s", "weight", 1
    )
    for axis in ("xaxis", "yaxis"):
        drawn[axis] |= {"type": "category"}
    notes = ["Each line of cells adds up to 1."]
    notes += ["The first seed."] if has_several_seeds(rows) else []
    title = "What a session starts from: weights of earlier models"
    return varied(Chart("weights", title, notes, {"layout": drawn}), rows, draw)


def _tests(rows: Sequence[ChartRow]) -> list[Chart]:
    """What clients found when they tested models for a start, and what was taken; the first seed."""
    traces = []
    for row in (row for row in rows if row.runs):
        lines = first_run(row)[1]
        tested = [line for line in lines if "start_losses" in line]
        sessions = {line["start"]: line["session"] + 1 for line in lines if "start" in line}
        if tested:
            traces.append(
                of_row(row, shown(rows))
                | {
                    "x": [line["session"] + 1 for line in tested],
                    "y": [round(line["start_gain"], 4) for line in tested],
                    "text": [_tested_words(line, sessions) for line in tested],
                    "mode": "markers",
                    "marker": {"color": row.look.colour, "size": 9},
                    "hovertemplate": "%{text}",
                }
            )
    drawn = layout("session", "fall of the loss")
    drawn["yaxis"] |= {"rangemode": "tozero"}
    notes = [
        "The mean loss of the current model over the clients that tested, minus that of the model that was "
        "taken; 0: the current model stayed. Point at a mark for models, losses and answers."
    ]
    notes += ["The first seed."] if has_several_seeds(rows) else []
    title = "What clients gained when they tested models for a start"
    return [Chart("tests", title, notes, {"data": traces, "layout": drawn})] if traces else []


def _tested_words(line: Line, sessions: Mapping[int, int]) -> str:
    """A start's tests in words: what was taken, of how many, losses, answers and messages.

    `sessions` has the session of every start.
    """
    sources = zip(line["start_from"], line["start_weights"], strict=True)
    parts = [f"session {sessions.get(number, number + 1)}" for number, weight in sources if weight]
    current = line["start_losses"][0]
    return (
        f"session {line['session'] + 1}: the mean of {len(parts)} model{'s' * (len(parts) > 1)} "
        f"({', '.join(parts)})<br>taken from {len(line['start_tests'])} candidates, loss "
        f"{current:.3f} \N{RIGHTWARDS ARROW} {current - line['start_gain']:.3f}<br>"
        f"{line['test_answers']} answers in {line['test_exchanges']} exchanges"
    )
