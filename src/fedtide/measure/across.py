"""Results of several folders side by side: of other settings, versions or studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fedtide.measure.catalogue import settings, varying
from fedtide.measure.results import COMPARED, ResultRow, Results
from fedtide.measure.scale import Scale
from fedtide.measure.statistics import Paired, paired
from fedtide.record.folder import StudyFolder

ORIGIN = {  # what made a run, as the terminal names it
    "fedtide": "fedtide",
    "source": "source checksum",
    "own_files": "own files checksum",
    "torch": "torch",
    "numba": "numba",
    "processor": "processor",
    "data": "data checksum",
}


class Side(NamedTuple):
    """One of the folders."""

    title: str
    results: Results
    settings: Mapping[str, str]


class MatchedRows(NamedTuple):
    """Rows that are compared: the same setting in several folders, by the number of the folder."""

    name: str
    rows: Mapping[int, ResultRow]


@dataclass(frozen=True)
class Across:
    """Several folders of results."""

    sides: Sequence[Side]

    @classmethod
    def read(cls, folders: Sequence[StudyFolder]) -> Across:
        """Read these folders; the last parts of their paths that differ are their titles."""
        titles = _titles([folder.path.resolve().parts for folder in folders])
        return cls(
            [
                Side(title, Results.read(folder), {**settings(folder), **_origin(folder)})
                for title, folder in zip(titles, folders, strict=True)
            ]
        )

    @property
    def differences(self) -> dict[str, list[str]]:
        """Settings, versions and data that differ, each with its value in every folder."""
        found = [side.settings for side in self.sides]
        return {key: [one.get(key, "") for one in found] for key in varying(found)}

    @cached_property
    def groups(self) -> list[MatchedRows]:
        """The settings that several folders have; if none, the best setting of each folder."""
        named = {
            row.label: side.results.name(row)
            for side in reversed(self.sides)
            for row in side.results.rows
        }
        labels = dict.fromkeys(row.label for side in self.sides for row in side.results.rows)
        found = [MatchedRows(named[label], dict(self._rows(label))) for label in labels]
        shared = [group for group in found if len(group.rows) > 1]
        best = {
            number: max(rows, key=lambda row: row.merit)
            for number, side in enumerate(self.sides)
            if (rows := [row for row in side.results.rows if row.final])
        }
        return shared or [MatchedRows("the best setting of each", best)]

    def _rows(self, label: str) -> Iterator[tuple[int, ResultRow]]:
        for number, side in enumerate(self.sides):
            for row in side.results.rows:
                if row.label == label and row.final:
                    yield number, row

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that all rows have, the most important one first."""
        rows = [row for group in self.groups for row in group.rows.values()]
        if len({row.scale for row in rows}) != 1:  # nothing to compare, or several scores
            return []
        names = [rows[0].scale.metric(when) for when in COMPARED]
        return [name for name in names if all(name in row.numbers for row in rows)]

    @property
    def scale(self) -> Scale:
        """The score, if it is the same in all folders."""
        return self.sides[0].results.scale

    def pairs(self, metric: str) -> list[tuple[MatchedRows, list[Paired]]]:
        """For each group the comparison of its folders, p corrected for all of them."""
        places: dict[int, tuple[MatchedRows, int]] = {}
        numbered = []
        for group in self.groups:
            ids = {len(places) + place: number for place, number in enumerate(group.rows)}
            places |= {key: (group, number) for key, number in ids.items()}
            numbered.append({key: group.rows[n].scores(metric) for key, n in ids.items()})
        found: dict[str, list[Paired]] = {group.name: [] for group in self.groups}
        for pair in paired(numbered):
            group, first = places[pair.first]
            found[group.name].append(pair._replace(first=first, second=places[pair.second][1]))
        return [(group, found[group.name]) for group in self.groups]

    def as_json(self) -> dict[str, Any]:
        """The comparison for other programs."""
        return {
            "folders": [side.title for side in self.sides],
            "differences": self.differences,
            "results": {
                metric: [
                    {
                        "setting": group.name,
                        "means": {
                            self.sides[n].title: row.numbers[metric].mean
                            for n, row in group.rows.items()
                        },
                        "comparisons": [
                            {
                                "first": self.sides[pair.first].title,
                                "second": self.sides[pair.second].title,
                                **pair.as_json(),
                            }
                            for pair in pairs
                        ],
                    }
                    for group, pairs in self.pairs(metric)
                ]
                for metric in self.metrics
            },
        }


def _titles(paths: Sequence[Sequence[str]]) -> list[str]:
    """The shortest ends of these paths, from the study's name on, that differ."""
    longest = max(map(len, paths))
    for count in range(2, longest + 1):
        ends = ["/".join(path[-count:]) for path in paths]
        if len(set(ends)) == len(ends):
            return ends
    return [f"{'/'.join(path[-2:])} ({number + 1})" for number, path in enumerate(paths)]


def _origin(folder: StudyFolder) -> dict[str, str]:
    """What made the runs of a folder: code, data and machine; several values if they differ."""
    made = [origin for cell in folder.journals() for origin in cell.origins.values() if origin]
    return {
        title: " | ".join(values)
        for key, title in ORIGIN.items()
        if (values := dict.fromkeys(str(one[key]) for one in made if one.get(key)))
    }
