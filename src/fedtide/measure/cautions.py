"""Warnings about the results of a study: runs that diverged, rounds without clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedtide.measure.evaluation import IN_A_ROW, TOO_HIGH, has_diverged
from fedtide.measure.windows import windows
from fedtide.record.line import Line

MANY_EMPTY = 0.1  # share of rounds without clients from which there is a warning
NAMED = 3  # settings; further ones are only counted

Runs = Mapping[int, Sequence[Line]]  # the lines of a setting's journals, by seed


def cautions(cells: Iterable[tuple[str, Runs]]) -> list[str]:
    """One sentence for each kind of problem, from the label and the runs of every setting."""
    cells = list(cells)
    return [*_divergence(cells), *_empty_rounds(cells), *_untested(cells)]


def validated(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence if scores are those of validation examples, from the settings of every cell."""
    found = {cell.get("evaluation", {}).get("on") for cell in settings}
    if "validation" not in found:
        return []
    some = "Some scores" if len(found) > 1 else "Scores"
    return [f"{some} are those on validation examples (evaluation.on), not on the test set."]


def empty_rounds(lines: Sequence[Line]) -> int:
    """The number of rounds in which no client took part."""
    return sum(line["cohort"] == 0 for line in lines)


def _divergence(cells: Sequence[tuple[str, Runs]]) -> list[str]:
    found = {
        label: seeds
        for label, runs in cells
        if (seeds := [seed for seed, lines in runs.items() if has_diverged(lines)])
    }
    if not found:
        return []
    words = [f"{label} (seed {', '.join(map(str, seeds))})" for label, seeds in found.items()]
    return [
        f"Training diverged with {_listed(words)}: the test loss was more than {TOO_HIGH:g} times the "
        f"untrained model's in {IN_A_ROW} evaluations running. Those accuracies say nothing about a method."
    ]


def _empty_rounds(cells: Sequence[tuple[str, Runs]]) -> list[str]:
    words = []
    for label, runs in cells:
        empty, all_ = sum(map(empty_rounds, runs.values())), sum(map(len, runs.values()))
        if all_ and empty / all_ >= MANY_EMPTY:
            words.append(f"in {empty:,} of {all_:,} rounds with {label}")
    return [f"No client took part {_listed(words)}: the model stood still there."] if words else []


def _untested(cells: Sequence[tuple[str, Runs]]) -> list[str]:
    """A sentence if the model was not tested between some starts and the next ones."""
    found = [
        [line for line in lines[window.first : window.end] if line["loss"] is not None]
        for _, seeds in cells
        for lines in seeds.values()
        for window in windows(lines)
    ]
    missing = sum(not tested for tested in found)
    if not missing:
        return []
    return [
        f"The model was not tested after {missing:,} of {len(found):,} starts: what is measured after starts "
        "leaves these out. Set evaluation.every = 1 to test it in every round."
    ]


def _listed(words: Sequence[str]) -> str:
    more = len(words) - NAMED
    return "; ".join([*words[:NAMED], *([f"and {more} more settings"] if more > 0 else [])])
