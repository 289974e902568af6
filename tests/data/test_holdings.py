"""What clients hold."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import DataError
from fedtide.core.types import Dataset, Examples, Group
from fedtide.data.holdings import Static, distribute
from fedtide.data.partition import PARTITIONS, Iid


def stores(holdings):
    """Every client's examples."""
    return [
        holdings.examples(0, np.array([u]), np.arange(size)[None])[0].tolist() if size else []
        for u, size in enumerate(holdings.sizes(0, np.arange(holdings.clients)))
    ]


def test_stores_from_owners():
    """Client 0 owns examples 1 and 3, client 1 none, client 2 owns 2 and 4; 0 and 5 are not owned."""
    holdings = Static.of_owners(np.array([-1, 0, 2, 0, 2, -1]), 4)
    assert holdings.clients == 4
    assert holdings.sizes(0, np.arange(4)).tolist() == [2, 0, 2, 0]
    assert holdings.sizes(9, np.array([2, 0, 2])).tolist() == [2, 2, 2]
    assert stores(holdings) == [[1, 3], [], [2, 4], []]


def test_examples_at_places_of_any_shape():
    holdings = Static.of_owners(np.array([0, 1, 1, 0, 1]), 2)
    places = np.array([[[0, 1], [2, 0]], [[1, 0], [0, 1]]])
    taken = holdings.examples(0, np.array([1, 0]), places)
    assert taken.tolist() == [[[1, 2], [4, 1]], [[3, 0], [0, 3]]]


def test_held():
    holdings = Static.of_owners(np.array([-1, 0, 2, 0, 2, 3]), 4)
    assert sorted(holdings.held(0, np.array([0, 3]))) == [1, 3, 5]
    assert sorted(holdings.held(0, np.array([3, 2, 1]))) == [2, 4, 5]
    assert holdings.held(0, np.array([1])).tolist() == []
    assert sorted(holdings.held(0, np.arange(4))) == [1, 2, 3, 4, 5]


def test_joined():
    """Groups are numbered one after the other and may share examples."""
    one, two = Static.of_owners(np.array([0, 1, 0]), 2), Static.of_owners(np.array([1, -1, 0]), 3)
    joined = Static.joined([one, two])
    assert joined.clients == 5
    assert stores(joined) == [[0, 2], [1], [2], [0], []]
    assert set(joined.held(0, np.array([0, 3]))) == {0, 2}


def test_labels():
    holdings = Static.of_owners(np.array([-1, 0, 2, 0, 2, 2]), 3)
    counts = holdings.labels(np.array([0, 1, 0, 1, 2, 0]), 3)
    assert counts.tolist() == [[0, 2, 0], [0, 0, 0], [2, 0, 1]]


@given(data=st.data(), clients=st.integers(1, 7))
@settings(max_examples=80, deadline=None)
def test_laws_of_stores(data, clients):
    owners = np.array(data.draw(st.lists(st.integers(-1, clients - 1), min_size=1, max_size=40)))
    holdings = Static.of_owners(owners, clients)
    assert stores(holdings) == [np.flatnonzero(owners == u).tolist() for u in range(clients)]
    some = data.draw(st.lists(st.integers(0, clients - 1), unique=True, min_size=1))
    held = holdings.held(0, np.array(some))
    assert set(held) == set(np.flatnonzero(np.isin(owners, some)))


# Distributing


def dataset(targets, keys=None):
    targets = torch.as_tensor(targets)
    examples = Examples(torch.zeros(len(targets), 1), targets)
    return Dataset("toy", examples, examples, int(targets.max()) + 1, keys)


def test_groups_get_the_labels_they_ask_for():
    """Label 1 is shared: both groups hold all of its examples."""
    targets = np.arange(60) % 4
    groups = [Group(3, (0, 1)), Group(2, (1, 2))]
    holdings = distribute(dataset(targets), Iid(), groups, seed=0)
    assert holdings.clients == 5
    first, second = (
        sorted(holdings.held(0, np.arange(3))),
        sorted(holdings.held(0, np.arange(3, 5))),
    )
    assert first == np.flatnonzero(targets <= 1).tolist()
    assert second == np.flatnonzero((targets == 1) | (targets == 2)).tolist()
    assert holdings.sizes(0, np.arange(5)).tolist() == [10, 10, 10, 15, 15]
    for group in (
        stores(holdings)[:3],
        stores(holdings)[3:],
    ):  # within a group each example has one owner
        together = list(chain.from_iterable(group))
        assert len(together) == len(set(together))


def test_a_group_without_labels_takes_everything():
    holdings = distribute(dataset(np.arange(12) % 3), Iid(), [Group(4)], seed=0)
    assert sorted(holdings.held(0, np.arange(4))) == list(range(12))


def test_the_split_has_an_address():
    one, same, other = (
        stores(distribute(dataset(np.arange(40) % 4), Iid(), [Group(4), Group(4)], seed))
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other
    assert one[:4] != one[4:]  # groups are split each in its own way


def test_natural_owners_follow_their_examples():
    keys = np.array([7, 7, 3, 3, 7, 3, 9, 9])
    targets = [0, 1, 0, 1, 1, 0, 0, 1]
    groups = [Group(3, (0,))]
    holdings = distribute(dataset(targets, keys), PARTITIONS["natural"](), groups, seed=0)
    assert sorted(map(tuple, stores(holdings))) == [(0,), (2, 5), (6,)]


def test_labels_that_do_not_occur():
    with pytest.raises(DataError) as caught:
        distribute(dataset([0, 1, 3]), Iid(), [Group(1, (0,)), Group(1, (2,))], seed=0)
    assert str(caught.value) == (
        "population: the labels (2,) of group 1 must occur in the data. Got none of them in 'toy'. "
        "Choose a smaller overlap or other data."
    )
