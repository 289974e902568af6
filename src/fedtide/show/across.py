"""`fedtide compare` in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from fedtide.measure.across import Across
from fedtide.measure.scale import Scale
from fedtide.measure.statistics import Paired
from fedtide.show.columns import NONE, measured, percent
from fedtide.show.report.headline import points
from fedtide.show.report.pairs import probability, titles

SHOWN = 40  # letters of a value


def differences_table(found: Across) -> Table:
    """Every setting, version and checksum that is not the same in all folders."""
    table = Table(title="What differs", title_justify="left", box=None, pad_edge=False)
    table.add_column("setting", overflow="fold")
    for side in found.sides:
        table.add_column(side.title, overflow="fold")
    for key, values in found.differences.items():
        table.add_row(key, *(Text(_short(value)) for value in values))
    if not found.differences:
        table.add_row("nothing", *[""] * len(found.sides))
    return table


def _short(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[: SHOWN - 4]} ..."


def results_tables(found: Across) -> Iterator[Table]:
    """For each metric, the means of every setting in every folder, and their difference."""
    for metric in found.metrics:
        unit = " (%)" if found.scale.is_accuracy else ""
        title = f"{titles(found.scale)[metric]}{unit}: mean ± std over seeds"
        text = percent if found.scale.is_accuracy else measured
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("setting", overflow="fold")
        for side in found.sides:
            table.add_column(side.title, justify="right", overflow="fold")
        if len(found.sides) == 2:
            table.add_column("difference", justify="right")
            table.add_column("p (Holm)", justify="right")
        for group, pairs in found.pairs(metric):
            cells = [
                text(group.rows[n].numbers[metric]) if n in group.rows else NONE
                for n in range(len(found.sides))
            ]
            told = _pair(pairs, found.scale) if len(cells) == 2 else []
            table.add_row(group.name, *cells, *told)
        yield table


def _pair(pairs: list[Paired], scale: Scale) -> list[str]:
    """The second folder minus the first one, with half of its 95 % interval."""
    if not pairs:
        return [NONE, NONE]
    sign = scale.sign * (-1 if pairs[0].first == 0 else 1)
    gap = scale.apart(sign * pairs[0].difference, pairs[0].margin, "+")
    return [gap, probability(pairs[0].p_holm)]


def headlines(found: Across) -> list[str]:
    """Which folder is ahead, setting by setting, by the first metric."""
    if not found.metrics:
        return ["The folders have no finished runs with the same metric."]
    said = []
    for group, pairs in found.pairs(found.metrics[0]):
        if not pairs:
            said.append(f"{group.name}: the folders have fewer than two seeds in common.")
        for pair in pairs:
            first, second = found.sides[pair.first].title, found.sides[pair.second].title
            said.append(
                f"{group.name}: {first} is ahead of {second} by {points(pair, found.scale)} "
                f"({pair.seeds} seeds)."
                if pair.is_clear
                else f"{group.name}: {pair.seeds} seeds cannot tell {first} and {second} apart."
            )
    return said
