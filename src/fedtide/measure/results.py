"""The numbers of a report: for every setting of the grid, its metrics over the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.metrics import Metric, metrics
from fedtide.measure.summary import beside_first, is_even, spread
from fedtide.measure.targets import common_target, to_target
from fedtide.record.folder import CellRecord, StudyFolder, word
from fedtide.record.line import Line
from fedtide.show.report.colours import PALETTE, Look, look


class Spread(NamedTuple):
    """A number over seeds."""

    mean: float
    std: float  # sample standard deviation; 0 for one seed
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None without values."""
        if not values:
            return None
        known = spread(values)
        return cls(known["mean"], known["std"], len(values))


class Row(NamedTuple):
    """One setting of the grid: a row of the table and a line in every chart."""

    number: int
    look: Look  # the same everywhere
    label: str
    settings: Mapping[str, Any]
    words: Mapping[str, str]  # the settings as they are shown
    runs: Mapping[int, list[Line]]  # journal lines by seed
    finished: Sequence[int]  # seeds whose run came to its end
    numbers: Mapping[str, Spread]  # by metric; empty before the first evaluation
    transitions: Sequence[Spread]  # accuracy after each change, if all seeds had equally many
    recoveries: Sequence[Spread] = ()  # rounds to recover from each, beside the first setting

    @property
    def final(self) -> bool:
        """Do the numbers come from finished runs?"""
        return bool(self.finished and self.numbers)

    @property
    def merit(self) -> float:
        """The larger the better."""
        known = self.numbers.get("transition_accuracy") or self.numbers.get("accuracy")
        return known.mean if known else float("-inf")


class Results(NamedTuple):
    """What a report is made from."""

    about: Mapping[str, Any]  # study.json
    rows: Sequence[Row]
    engines: Sequence[str]  # which engines ran, and why
    target: float | None = None  # an accuracy that every finished run reached

    @property
    def seeds(self) -> list[int]:
        return list(self.about["seeds"])

    @property
    def transition_rounds(self) -> int:
        return int(self.about["transition_rounds"])

    @property
    def keys(self) -> list[str]:
        """The settings that differ between the rows."""
        return list(dict.fromkeys(key for row in self.rows for key in row.settings))

    def short(self, row: Row) -> str:
        """A row's name in a sentence: the value alone where it is a word and the only setting."""
        values = list(row.settings.values())
        is_word = len(self.keys) == 1 and not isinstance(values[0], int | float | list)
        return row.words[self.keys[0]] if is_word else row.label


def results(folder: StudyFolder) -> Results:
    """Read a folder: of a whole study, or of one that was killed half-way."""
    about = folder.read_json("study.json")
    cells = folder.journals()
    engines = dict.fromkeys(e["engine"] for c in cells for e in c.ends.values() if e.get("engine"))
    target = common_target([cell.runs[s] for cell in cells for s in cell.ends if s in cell.runs])
    beside = beside_first([cell.runs for cell in cells])
    rows = []
    for number, (cell, gaps) in enumerate(zip(cells, beside, strict=True)):
        chosen = [seed for seed in cell.ends if seed in cell.runs] or list(cell.runs)
        aim = target if cell.ends else None
        known = [
            {
                **metrics(cell.runs[seed], int(about["transition_rounds"])),
                **to_target(cell.runs[seed], aim),
                **gaps.get(seed, {}),
            }
            for seed in chosen
            if _evaluated(cell.runs[seed])
        ]
        rows.append(_row(number, cell, known))
    return Results(about, _best_solid(rows), list(engines), target)


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The best first."""
    return sorted(rows, key=lambda row: (-row.merit, row.number))


def _best_solid(rows: list[Row]) -> list[Row]:
    """With more rows than colours, the best ones get the solid lines."""
    if len(rows) <= len(PALETTE):
        return rows
    places = {row.number: place for place, row in enumerate(ranked(rows))}
    return [row._replace(look=look(places[row.number])) for row in rows]


def _row(number: int, cell: CellRecord, known: Sequence[Mapping[str, Metric]]) -> Row:
    """The numbers of a cell come from its finished runs; without any, from what there is so far."""
    return Row(
        number,
        look(number),
        cell.label,
        cell.settings,
        {key: word(value) for key, value in cell.settings.items()},
        cell.runs,
        list(cell.ends),
        dict(_numbers(known)),
        list(_by_change(known, "transition_accuracy")),
        list(_by_change(known, "recovery_rounds")),
    )


def _evaluated(lines: Sequence[Line]) -> bool:
    return any(line["accuracy"] is not None for line in lines)


def _numbers(runs: Sequence[Mapping[str, Metric]]) -> Iterator[tuple[str, Spread]]:
    """Every metric over the seeds that have it; a list, such as one value per transition, by its mean."""
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if name in run]
        flat = [fmean(v) if isinstance(v, list) else v for v in values if v != []]
        if over_seeds := Spread.of(flat):
            yield name, over_seeds


def _by_change(runs: Sequence[Mapping[str, Metric]], name: str) -> Iterator[Spread]:
    """A metric of each change of clients over the seeds; none, where seeds had different numbers of them."""
    lists = [values for run in runs if isinstance(values := run.get(name), list)]
    for column in zip(*lists, strict=True) if is_even(lists) else ():
        if over_seeds := Spread.of(column):
            yield over_seeds
