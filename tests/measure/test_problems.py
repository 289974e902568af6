"""Which rows are compared with which."""

import pytest

from fedtide.core.errors import ConfigError
from fedtide.measure.problems import references, split
from fedtide.measure.recovery import Recovery

GRID = [
    {"data": name, "start": start}
    for name in ("digits", "mnist")
    for start in ("previous", {"kind": "soup", "margin": 2})
]


def test_rows_are_compared_with_the_first_of_their_problem():
    assert references(split(GRID, []), GRID, Recovery()) == [0, 0, 2, 2]


def test_a_study_names_the_reference():
    by = Recovery(reference={"start": "soup"})
    assert references(split(GRID, []), GRID, by) == [1, 1, 3, 3]


def test_a_reference_that_no_row_fits():
    with pytest.raises(ConfigError, match=r"recovery\.reference must be settings of a row"):
        references(split(GRID, []), GRID, Recovery(reference={"start": "cold"}))


def test_problems_of_cases_are_named_by_what_differs():
    grid = [{"case": name} for name in "abc"]
    partitions = [{"kind": "iid"}, *[{"kind": "dirichlet", "alpha": 0.1}] * 2]
    settings = [{"data": {"name": "digits", "partition": one}} for one in partitions]
    assert [(p.name, p.rows) for p in split(grid, settings)] == [
        ("iid", [0]),
        ("dirichlet (alpha = 0.1)", [1, 2]),
    ]
    for number, one in enumerate(settings):
        one["data"] |= {f"key{n}": number > 0 for n in range(4)}
    assert [p.name for p in split(grid, settings)] == ["problem = 1", "problem = 2"]
