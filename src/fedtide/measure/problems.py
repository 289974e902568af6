"""Which rows of a grid solve the same problem, so that their methods can be compared.

Data, population, network, faults, attack and model pose the problem; everything else belongs to the method.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.measure.names import PROBLEM, names, of_method, of_problem
from fedtide.measure.ranks import Ranks, ranked
from fedtide.record.folder import CellRecord


class SharedProblem(NamedTuple):
    """A problem and the numbers of the rows that solve it."""

    name: str
    rows: Sequence[int]


def split(
    cells: Sequence[CellRecord], settings: Sequence[Mapping[str, Any]]
) -> list[SharedProblem]:
    """The problems of a study; one problem with all rows if no two rows solve the same one.

    `settings` has every setting of every cell. Without it, the problem is known from the grid alone.
    """
    groups: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        posed = _posed(settings[number]) if len(settings) == len(cells) else {}
        key = json.dumps([of_problem(cell.settings), posed], sort_keys=True, default=str)
        groups.setdefault(key, []).append(number)
    if len(groups) == 1 or all(len(rows) == 1 for rows in groups.values()):
        return [SharedProblem("", range(len(cells)))]
    posed_by_grid = [of_problem(cells[rows[0]].settings) for rows in groups.values()]
    if not all(posed_by_grid):
        posed_by_grid = [{"problem": number + 1} for number in range(len(groups))]
    return [SharedProblem(*one) for one in zip(names(posed_by_grid), groups.values(), strict=True)]


def _posed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell that pose its problem."""
    found = {}
    for section in PROBLEM:
        value: Any = settings
        for part in section.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        found[section] = value
    return found


def ranks_over(
    problems: Sequence[SharedProblem],
    settings: Sequence[Mapping[str, Any]],
    scores: Sequence[float],
) -> Ranks | None:
    """The mean ranks of methods over problems, from the settings and the score of every row."""
    if len(problems) < 2:
        return None
    methods = [of_method(one) for one in settings]
    keys = [json.dumps(one, sort_keys=True, default=str) for one in methods]
    distinct = dict(zip(keys, methods, strict=True))
    said = dict(zip(distinct, names(list(distinct.values())), strict=True))
    return ranked([{said[keys[n]]: scores[n] for n in problem.rows} for problem in problems])
