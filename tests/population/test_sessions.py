"""Who exists in which round."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError
from fedtide.core.types import Group
from fedtide.population import POPULATIONS
from fedtide.population.sessions import Alternating, Fixed, Pattern


def label_sets(classes, overlap):
    first, second = Alternating(clients=5, labels_overlap=overlap).groups(classes)
    assert first.clients == second.clients == 5
    return list(first.labels), list(second.labels)


def span(first, last):
    return list(range(first, last + 1))


@pytest.mark.parametrize(
    ("classes", "overlap", "first", "second"),
    [
        (10, 0.2, span(0, 4), span(4, 8)),  # G = floor(10 / 1.8) = 5, O = 1; label 9 is left over
        (100, 0.2, span(0, 54), span(44, 98)),  # G = 55, O = 11
        (200, 0.2, span(0, 110), span(89, 199)),  # G = 111, O = 22
        (4, 0.8, span(0, 2), span(1, 3)),  # G = floor(4 / 1.2) = 3, O = 2
        (4, 0.2, span(0, 1), span(2, 3)),  # G = 2, O = 0: halves
        (10, 0.0, span(0, 4), span(5, 9)),
        (5, 0.0, span(0, 1), span(2, 4)),  # the first floor(L / 2), and the rest
        (2, 0.9, [0], [1]),
    ],
)
def test_label_sets_of_the_paper(classes, overlap, first, second):
    assert label_sets(classes, overlap) == (first, second)


@given(
    classes=st.integers(2, 26) | st.sampled_from([47, 62, 80, 100, 200, 1000]),
    percent=st.integers(0, 99),
)
def test_label_sets_by_their_formula(classes, percent):
    """In exact arithmetic, for the numbers of labels that datasets have."""
    first, second = label_sets(classes, percent / 100)
    overlap = Fraction(percent, 100)
    size = int(classes / (2 - overlap))
    shared = int(size * overlap)
    assert set(first) | set(second) <= set(range(classes))
    assert len(set(first) & set(second)) == shared
    assert len(first) == (size if shared else classes // 2)
    assert len(second) == (size if shared else classes - classes // 2)


def test_groups_take_turns():
    population = Alternating(clients=3, sessions=4, rounds=2)
    assert population.length == 8
    sessions = [population.at(t) for t in range(8)]
    assert [s.number for s in sessions] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [s.first for s in sessions] == [0, 0, 2, 2, 4, 4, 6, 6]
    assert [s.clients.tolist() for s in sessions[::2]] == [[0, 1, 2], [3, 4, 5]] * 2
    assert {s.rounds for s in sessions} == {2}


def test_fixed():
    population = Fixed(clients=4, rounds=3)
    assert population.length == 3
    assert population.groups(10) == [Group(4, None)]
    for t in range(3):
        session = population.at(t)
        assert session.clients.tolist() == [0, 1, 2, 3]
        assert (session.number, session.first, session.rounds) == (0, 0, 3)


def test_pattern():
    population = Pattern(clients=6, sessions=((3, 0), (5,), (0, 1, 2)), rounds=2)
    assert population.length == 6
    assert population.groups(10) == [Group(6, None)]
    sessions = [population.at(t) for t in range(6)]
    assert [s.clients.tolist() for s in sessions[::2]] == [[0, 3], [5], [0, 1, 2]]
    assert all(
        np.array_equal(a.clients, b.clients)
        for a, b in zip(sessions[::2], sessions[1::2], strict=True)
    )
    assert [s.number for s in sessions] == [0, 0, 1, 1, 2, 2]
    assert [s.first for s in sessions] == [0, 0, 2, 2, 4, 4]


def test_one_label_cannot_alternate():
    with pytest.raises(ConfigError) as caught:
        Alternating().groups(1)
    assert str(caught.value) == (
        "population 'alternating' must have data with at least 2 labels. Got 1. "
        "Use population.kind = 'fixed'."
    )


def test_the_names_of_the_populations():
    assert {"fixed": Fixed, "alternating": Alternating, "pattern": Pattern}.items() <= (
        POPULATIONS.items()
    )
