"""Which rows of a grid solve the same problem, so that their methods can be compared.

Data, population, network, faults, attack and model pose the problem; everything else belongs to the method.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.core.errors import ConfigError
from fedtide.measure.names import PROBLEM, names, of_method, of_problem
from fedtide.measure.ranks import Ranks, ranked
from fedtide.measure.recovery import Recovery
from fedtide.record.line import leaves

FEW = 3  # settings that name a problem


class SharedProblem(NamedTuple):
    """A problem and the numbers of the rows that solve it."""

    name: str
    rows: Sequence[int]


def split(
    grid: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, Any]]
) -> list[SharedProblem]:
    """The problems of a study; one problem with all rows if no two rows solve the same one.

    `grid` has the settings of each row that differ between rows, `settings` all of them. Without these, the
    problem is known from the grid alone.
    """
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(grid):
        posed = _posed(settings[number]) if len(settings) == len(grid) else {}
        key = json.dumps([of_problem(row), posed], sort_keys=True, default=str)
        groups.setdefault(key, []).append(number)
    if len(groups) == 1 or all(len(rows) == 1 for rows in groups.values()):
        return [SharedProblem("", range(len(grid)))]
    posed_by_grid = [of_problem(grid[rows[0]]) for rows in groups.values()]
    if not all(posed_by_grid):  # cases pose them
        posed_by_grid = _differing([_posed(settings[rows[0]]) for rows in groups.values()])
    return [SharedProblem(*one) for one in zip(names(posed_by_grid), groups.values(), strict=True)]


def _differing(posed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The few settings by which these problems differ, by dotted keys; if they are many, their numbers."""
    flat = [{".".join(path): value for path, value in leaves(one)} for one in posed]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if _differs(key, flat)]
    if len(keys) > FEW:
        return [{"problem": number + 1} for number in range(len(posed))]
    return [{key: one[key] for key in keys if key in one} for one in flat]


def _differs(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({json.dumps(row.get(key), default=str) for row in rows}) > 1


def references(
    problems: Sequence[SharedProblem], grid: Sequence[Mapping[str, Any]], recovery: Recovery
) -> list[int]:
    """For every row, the row with which it is compared: the first of its problem that fits."""
    found: dict[int, int] = {}
    for problem in problems:
        fitting = (n for n in problem.rows if recovery.fits(grid[n]))
        if (first := next(fitting, None)) is None:
            raise ConfigError(
                f"recovery.reference must be settings of a row{_of(problem)}. Got {recovery.reference}. "
                'Write settings of the grid, such as { start = "previous" }.'
            )
        found |= dict.fromkeys(problem.rows, first)
    return [found[n] for n in range(len(grid))]


def _of(problem: SharedProblem) -> str:
    return f" of every problem, also of {problem.name}" if problem.name else ""


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
