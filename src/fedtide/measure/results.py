"""The results of a study: the metrics of every setting over its seeds, read from the study's folder.

summary.json, the table in the terminal, the report, figures and CSV files are all made from one `Results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

from fedtide.measure.cautions import cautions, validated
from fedtide.measure.metrics import Metric, metrics
from fedtide.measure.names import names, said
from fedtide.measure.printed import printed
from fedtide.measure.problems import SharedProblem, ranks_over, references, split
from fedtide.measure.provenance import made_by, mixed
from fedtide.measure.ranks import Ranks
from fedtide.measure.recovery import Compared, Recovery
from fedtide.measure.scale import ACCURACY, Scale, scales
from fedtide.measure.searched import Searched
from fedtide.measure.searched import read as read_search
from fedtide.measure.statistics import Paired, paired
from fedtide.measure.summary import beside, is_even, spread, summarised
from fedtide.measure.targets import COSTS, by_seed, common_target, missed, to_target
from fedtide.measure.windows import Window
from fedtide.record.folder import CellRecord, StudyFolder
from fedtide.record.line import Line

COMPARED = ("transition_", "")  # scores by which methods are compared, the first ones first

ALL_PAIRS = 12  # rows of a problem; with more, they are only compared with the best one


class SeedSpread(NamedTuple):
    """A number over seeds."""

    mean: float
    std: float  # sample standard deviation; 0 for one seed
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedSpread | None:
        """None without values."""
        if not values:
            return None
        known = spread(values)
        return cls(known["mean"], known["std"], len(values))


@dataclass(frozen=True)
class ResultRow:
    """One setting of the grid: a row of every table and a line in every chart."""

    number: int
    label: str
    settings: Mapping[str, Any]  # only what differs between rows
    runs: Mapping[int, list[Line]]  # journal lines by seed
    finished: Sequence[int]  # seeds whose run has ended
    metrics: Mapping[int, Mapping[str, Metric]]  # of finished runs by seed; if none, of all runs
    windows: Mapping[int, Sequence[Window]] = field(default_factory=dict, kw_only=True)
    """The windows, by seed, in which the rows of a problem are compared."""
    scale: Scale = field(default=ACCURACY, kw_only=True)  # the score
    made_by: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Versions, and checksums of source, data and settings."""

    @cached_property
    def numbers(self) -> Mapping[str, SeedSpread]:
        """Each metric over the seeds that have it; a list, such as one value per start, by its mean."""
        names = dict.fromkeys(name for run in self.metrics.values() for name in run)
        means = {name: [_mean(run[name]) for run in self._with(name)] for name in names}
        return {name: found for name in names if (found := SeedSpread.of(means[name]))}

    @cached_property
    def transitions(self) -> Sequence[SeedSpread]:
        """The score after each start; empty if seeds had different numbers of them."""
        return list(self._by_start(self.scale.metric("transition_")))

    @cached_property
    def recoveries(self) -> Sequence[SeedSpread]:
        """Rounds to recover after each start; empty if seeds had different numbers of them."""
        return list(self._by_start("recovery_rounds"))

    def scores(self, metric: str) -> dict[int, float]:
        """A metric of the score by seed, of finished runs; more is better."""
        known, sign = self.metrics if self.final else {}, self.scale.sign
        return {
            s: sign * _mean(run[metric]) for s, run in known.items() if run.get(metric, []) != []
        }

    @property
    def words(self) -> Mapping[str, str]:
        """The settings as they are shown: `FedProx (mu = 0.1)`."""
        return {key: said(value) for key, value in self.settings.items()}

    @property
    def final(self) -> bool:
        """Do the numbers come from finished runs?"""
        return bool(self.finished and self.metrics)

    @property
    def merit(self) -> float:
        """The score after changes of clients, else at the end, more is better; -inf before the first test."""
        names = [self.scale.metric(when) for when in COMPARED]
        known = next((self.numbers[name] for name in names if name in self.numbers), None)
        return self.scale.sign * known.mean if known else float("-inf")

    def _with(self, metric: str) -> list[Mapping[str, Metric]]:
        """The metrics of seeds that have this one; an empty list counts as none."""
        return [run for run in self.metrics.values() if run.get(metric, []) != []]

    def _by_start(self, metric: str) -> Iterator[SeedSpread]:
        lists = [
            found for run in self.metrics.values() if isinstance(found := run.get(metric), list)
        ]
        for column in zip(*lists, strict=True) if is_even(lists) else ():
            if over_seeds := SeedSpread.of(column):
                yield over_seeds


@dataclass(frozen=True)
class Results:
    """The results of a study that has ended, is running or was broken off."""

    about: Mapping[str, Any]  # study.json
    rows: Sequence[ResultRow]
    engines: Sequence[str]  # which engines ran, and why
    target: float | None = None  # the score to reach: the study's, or one that every run reached
    cautions: Sequence[str] = ()  # what to know before trusting the numbers
    problems: Sequence[SharedProblem] = ()  # rows by the problem that they solve
    search: Searched | None = None  # how settings were chosen, if fedtide tune chose them
    recovery: Recovery = field(default_factory=Recovery)  # when a run has recovered
    references: Sequence[int] = ()  # for every row, the row with which it is compared

    @classmethod
    def read(cls, folder: StudyFolder, instead: Mapping[str, Any] | None = None) -> Results:
        """Read the journals of a study's folder and the metrics of its finished runs.

        `instead` has other values of the study's `recovery`, `target` and `columns`.
        """
        about, cells = folder.read_json("study.json") | dict(instead or {}), folder.journals()
        recovery = Recovery(**about.get("recovery", {}))
        ends = [end for cell in cells for end in cell.ends.values()]
        engines = dict.fromkeys(end["engine"] for end in ends if end.get("engine"))
        scale = scales(about)[0]
        finished = [[cell.runs[s] for s in cell.ends if s in cell.runs] for cell in cells]
        target = about.get("target") or common_target([r for runs in finished for r in runs], scale)
        settings = _all_settings(folder)
        grid = [cell.settings for cell in cells]
        problems = split(grid, settings)
        first = references(problems, grid, recovery)
        rounds = int(about["transition_rounds"])
        compared = beside([cell.runs for cell in cells], first, recovery, rounds, scale)
        rows = [
            ResultRow(
                n,
                cell.label,
                cell.settings,
                cell.runs,
                list(cell.ends),
                found,
                windows={seed: one.windows for seed, one in compared[n].items()},
                scale=scale,
                made_by=made_by(cell.origins.values()),
            )
            for n, cell in enumerate(cells)
            for found in [_metrics(cell, rounds, scale, target, compared[n])]
        ]
        named = names(grid)
        known = cautions((name, cell.runs) for name, cell in zip(named, cells, strict=True))
        known += mixed(origin for cell in cells for origin in cell.origins.values())
        known += missed(target, list(zip(named, finished, strict=True)), scale) if target else []
        search = read_search(folder)
        known += validated(settings) + (search.cautions if search else [])
        return cls(about, rows, list(engines), target, known, problems, search, recovery, first)

    @property
    def scale(self) -> Scale:
        """The score."""
        return self.scales[0]

    @property
    def scales(self) -> list[Scale]:
        """All scores of the study, the score first."""
        return scales(self.about)

    @property
    def study(self) -> str:
        """The study's name."""
        return str(self.about["study"])

    @property
    def seeds(self) -> list[int]:
        return list(self.about["seeds"])

    @property
    def transition_rounds(self) -> int:
        return int(self.about["transition_rounds"])

    @property
    def columns(self) -> list[str]:
        """The metrics that tables show, in this order; empty: those that say something about the study."""
        return list(self.about.get("columns", []))

    @property
    def keys(self) -> list[str]:
        """The settings that differ between the rows."""
        return list(dict.fromkeys(key for row in self.rows for key in row.settings))

    @cached_property
    def _names(self) -> list[str]:
        return names([row.settings for row in self.rows])

    def name(self, row: ResultRow) -> str:
        """A row's name in a sentence or a legend, such as `FedProx (mu = 0.1)`."""
        return self._names[row.number]

    @cached_property
    def compared(self) -> list[str]:
        """The metrics by which the rows are compared, the most important one first."""
        known = [row.numbers for row in self.rows if row.final]
        names = [self.scale.metric(when) for when in COMPARED]
        return [name for name in names if known and all(name in row for row in known)]

    @cached_property
    def pairs(self) -> Mapping[str, list[Paired]]:
        """For each compared metric, every pair of rows that solve the same problem.

        Of a problem with many rows only the pairs with its best row; p is corrected for all pairs.
        """
        return {metric: list(self._pairs(metric)) for metric in self.compared}

    def _pairs(self, metric: str) -> Iterator[Paired]:
        scores = [{n: self.rows[n].scores(metric) for n in p.rows} for p in self.problems]
        best = {
            max(known, key=lambda n: fmean(known[n].values()))
            for group in scores
            if (known := {n: found for n, found in group.items() if found})
        }
        many = {n for group in scores if len(group) > ALL_PAIRS for n in group}
        for pair in paired(scores):
            if pair.first not in many or best & {pair.first, pair.second}:
                yield pair

    @cached_property
    def ranks(self) -> Ranks | None:
        """The mean ranks of the methods, if several problems have the same methods."""
        if not self.compared or not all(row.final for row in self.rows):
            return None
        means = [self.scale.sign * row.numbers[self.compared[0]].mean for row in self.rows]
        return ranks_over(self.problems, [row.settings for row in self.rows], means)

    def summary(self) -> dict[str, Any]:
        """The content of summary.json.

        What it took to a target is there if the study names one: a target that follows from the results
        changes with every new run.
        """
        left_out = () if self.about.get("target") else COSTS
        cells = [
            (
                row.settings,
                [
                    {name: value for name, value in run.items() if name not in left_out}
                    for run in row.metrics.values()
                ],
                row.made_by,
            )
            for row in self.rows
        ]
        found = summarised(self.study, cells, self.cautions)
        for cell, row in zip(found["cells"], (r for r in self.rows if r.metrics), strict=True):
            runs = [row.runs[seed] for seed in row.metrics]
            cell |= {"printed": printed(runs, self.transition_rounds)}
        found["comparisons"] = {
            metric: [
                {
                    "first": self.name(self.rows[pair.first]),
                    "second": self.name(self.rows[pair.second]),
                    **pair.as_json(),
                }
                for pair in pairs
            ]
            for metric, pairs in self.pairs.items()
        }
        return found | ({"ranks": self.ranks.as_json()} if self.ranks else {})


def ranked(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Rows by merit, the best first."""
    return sorted(rows, key=lambda row: (-row.merit, row.number))


def _metrics(
    cell: CellRecord,
    transition_rounds: int,
    scale: Scale,
    target: float | None,
    compared: Mapping[int, Compared],
) -> dict[int, Mapping[str, Metric]]:
    """The metrics of a setting's finished runs by seed; without any, those of all runs so far.

    A finished run has its metrics in run.json.
    """
    chosen = [seed for seed in cell.ends if seed in cell.runs] or list(cell.runs)
    aim = target if cell.ends else None
    to_aim = by_seed({s: to_target(cell.runs[s], aim, scale) for s in chosen})
    return {
        seed: {
            **(
                cell.ends.get(seed, {}).get("metrics")
                or metrics(cell.runs[seed], transition_rounds, scale)
            ),
            **to_aim[seed],
            **(compared[seed].metrics if seed in compared else {}),
        }
        for seed in chosen
        if any(scale.value(line) is not None for line in cell.runs[seed])
    }


def _all_settings(folder: StudyFolder) -> Sequence[Mapping[str, Any]]:
    """Every setting of every cell, as far as the folder has them; those of FedTide 0.1 have none."""
    if not (folder.path / "settings.json").is_file():
        return []
    cells: list[Mapping[str, Any]] = folder.read_json("settings.json")["cells"]
    return cells


def _mean(metric: Metric) -> float:
    return fmean(metric) if isinstance(metric, list) else metric
