"""A trace of visits before it is used: numbers for the terminal, and a picture of who is present when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import OutputError, needs
from fedtide.population.arrivals import VisitTrace
from fedtide.population.description import Description, described, joined
from fedtide.population.recording import MOST, RecordedVisits
from fedtide.population.visits import Visits

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters of a line of bars
SHOWN = 3  # names of clients that are printed
ROWS, COLUMNS = 300, 800  # of the picture of who is present


def facts(trace: VisitTrace) -> Iterator[tuple[str, str]]:
    """What there is to know about a trace: pairs of a name and its value."""
    found = trace.recording()
    seen = described(found.visits, MOST)
    minutes = trace.round_minutes
    names = ", ".join(f"{n} = {name}" for n, name in enumerate(found.names[:SHOWN].tolist()))
    more = ", ..." if len(found.names) > SHOWN else ""
    is_named = found.names.tolist() != [str(n) for n in range(len(found.names))]
    yield "clients", f"{seen.clients:,}" + (f" ({names}{more})" if is_named else "")
    lasting = f", {seen.lasting:,} of them without an end" if seen.lasting else ""
    yield "visits", f"{seen.visits:,}{lasting}; {seen.returning:,} clients return"
    yield "rounds", f"{seen.rounds:,}{_span(found, seen, minutes)}"
    yield "mean stay", _length(seen.stay, minutes)
    yield "mean absence", _length(seen.gap, minutes)
    yield (
        "present",
        (
            f"{seen.present.mean():.1f} on average, {seen.present.min()} to {seen.present.max()}; "
            f"none in {int((seen.present == 0).sum()):,} rounds"
        ),
    )
    yield "turnover", f"{seen.turnover:.1%} of the clients per round"
    for why, count in found.dropped.items():
        if count:
            yield "dropped", f"{count:,} of the visits: {why}"
    yield "over time", bars(seen.present)


def _span(found: RecordedVisits, seen: Description, minutes: float) -> str:
    """The first and the last time of a trace with dates."""
    if not (minutes and found.is_dated):
        return f" of {minutes:g} minutes" if minutes else ""
    ends = (found.begin, found.begin + 60 * minutes * seen.rounds)
    dates = (f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M}" for second in ends)
    return f" of {minutes:g} minutes, {' to '.join(dates)} (UTC)"


def _length(rounds: float, minutes: float) -> str:
    """A number of rounds, and how long they last."""
    if np.isnan(rounds):
        return "–"  # noqa: RUF001
    hours = rounds * minutes / 60
    return f"{rounds:.1f} rounds" + (f" ({hours:.1f} hours)" if minutes else "")


def bars(counts: NDArray[np.int64]) -> str:
    """Counts over the rounds as a line of bars; each is a mean over neighbouring rounds."""
    parts = np.array_split(counts, min(WIDTH, len(counts)))
    means = np.array([part.mean() for part in parts])
    places = np.ceil(means / max(means.max(), 1e-9) * len(BARS)).astype(int) - 1
    return "".join(
        BARS[max(0, place)] if mean else " " for place, mean in zip(places, means, strict=True)
    )


def picture(trace: VisitTrace, path: Path) -> None:
    """Draw how many clients are present, and which, over the rounds."""
    needs("fedtide data --picture", "figures", "matplotlib")
    from matplotlib.figure import Figure

    found = trace.recording()
    seen = described(found.visits, MOST)
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    above.step(np.arange(seen.rounds), seen.present, where="post", color="#0072B2", linewidth=1)
    above.set_ylabel("clients present")
    above.set_ylim(bottom=0)
    shares, rows = presence(found.visits, seen.rounds)
    below.imshow(
        shares,
        aspect="auto",
        interpolation="nearest",
        origin="lower",
        cmap="Blues",
        vmin=0,
        extent=(0, seen.rounds, 0, rows),
    )
    below.set_xlabel(
        "round" + (f" of {trace.round_minutes:g} minutes" if trace.round_minutes else "")
    )
    below.set_ylabel("client, by first arrival")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"--picture must be a file that can be written, such as trace.png. Got {path}: {error}."
        ) from error


def presence(visits: Visits, rounds: int) -> tuple[NDArray[np.float64], int]:
    """Which clients are present when, as shares of cells of neighbouring clients and rounds."""
    client, arrive, leave = joined(visits)
    leave = np.minimum(leave, rounds)
    known, codes = np.unique(client, return_inverse=True)
    first = np.full(len(known), rounds)
    np.minimum.at(first, codes, arrive)
    place = np.empty(len(known), dtype=np.int64)
    place[np.argsort(first, kind="stable")] = np.arange(len(known))
    height, width = min(ROWS, len(known)), min(COLUMNS, rounds)
    row = place[codes] * height // len(known)
    # Time covered in a cell: the integral of presence up to an edge is piecewise linear in the edge.
    edges = np.linspace(0, rounds, width + 1)
    covered = np.zeros((height, width + 1))
    for number in range(height):
        mine = row == number
        corners = np.sort(np.concatenate([arrive[mine], leave[mine]]))
        begun = np.searchsorted(np.sort(arrive[mine]), corners, side="right")
        ended = np.searchsorted(np.sort(leave[mine]), corners, side="right")
        total = np.append(0, np.cumsum((begun - ended)[:-1] * np.diff(corners)))
        covered[number] = np.interp(edges, corners, total)
    members = np.bincount(place * height // len(known), minlength=height)
    shares: NDArray[np.float64] = np.diff(covered, axis=1) / members[:, None] * width / rounds
    return shares, len(known)
