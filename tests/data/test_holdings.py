"""What clients hold."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide import Data, Evaluation, Experiment, Fixed, Train, run
from fedtide.core.errors import ConfigError, DataError
from fedtide.core.types import Dataset, Examples, Group
from fedtide.data.groupings import PARTITIONS
from fedtide.data.holdings import Static, distribute
from fedtide.data.partition import DirichletHetero, Iid


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


def data_of(targets, **settings):
    inputs = torch.arange(len(targets), dtype=torch.float32)[:, None]
    own = Dataset(
        "own", Examples(inputs, torch.as_tensor(targets)), Examples(inputs[:4], inputs[:4, 0]), 4
    )
    return Data(name=own, **settings)


@pytest.mark.parametrize("where", ["all", "clients"])
def test_validation_examples_are_held_by_no_client(where):
    data = data_of(np.arange(200) % 4, validation=0.15, validation_from=where)
    groups = [Group(3, (0, 1)), Group(5, (1, 2, 3))]  # of label 1 both groups hold examples
    dataset, holdings = data.deal(lambda classes: groups, 1, seed=3)
    apart = set(dataset.validation.inputs[:, 0].int().tolist())
    held = list(chain(*stores(holdings)))
    assert not apart & set(held)
    assert apart | set(held) == set(range(200))
    assert dataset.validation.targets.tolist() == [place % 4 for place in sorted(apart)]
    assert len(dataset.train) == 200  # positions stay as they are
    assert dataset.scored_on("validation").test is dataset.validation
    assert len(dataset.scored_on("test").test) == 4
    again = data.deal(lambda classes: groups, 1, seed=3)[0].validation.inputs
    other = data.deal(lambda classes: groups, 1, seed=4)[0].validation.inputs
    assert torch.equal(again, dataset.validation.inputs)
    assert not torch.equal(other, dataset.validation.inputs)


def test_a_share_of_all_examples_or_of_each_clients():
    four = [Group(4)]
    dataset, _ = data_of([0] * 29, validation=0.5).deal(lambda classes: four, 1, seed=0)
    assert len(dataset.validation) == 14
    sizes = DirichletHetero(alpha=0.5, minimum=1)
    data = data_of(np.arange(400) % 4, partition=sizes)
    _, before = data.deal(lambda classes: four, 1, seed=1)
    less = replace(data, validation=0.29, validation_from="clients")
    dataset, after = less.deal(lambda classes: four, 1, seed=1)
    ids = np.arange(4)
    given = before.sizes(0, ids) - after.sizes(0, ids)
    assert given.tolist() == [int(0.29 * n + 1e-9) for n in before.sizes(0, ids)]
    assert len(dataset.validation) == given.sum()
    for one, other in zip(stores(before), stores(after), strict=True):
        assert [example for example in one if example in other] == other  # in the same order


def test_too_small_a_share_is_refused():
    with pytest.raises(ConfigError, match="large enough for an example"):
        data_of([0] * 9, validation=0.1).deal(lambda classes: [Group(2)], 1, seed=0)
    with pytest.raises(ConfigError, match="for example to 0"):
        Experiment(evaluation=Evaluation(on="validation"))
    few = data_of([0] * 40, validation=0.1, validation_from="clients")
    with pytest.raises(ConfigError, match="large enough for an example of a client"):
        few.deal(lambda classes: [Group(20)], 1, seed=0)


@pytest.mark.parametrize("where", ["all", "clients"])
def test_a_run_is_scored_on_validation_examples(where):
    """The score on validation examples is computed anew from the final model."""
    data = Data(validation=0.2, validation_from=where)
    e = Experiment(
        data=data,
        population=Fixed(clients=5, rounds=2),
        train=Train(steps=2),
        evaluation=Evaluation(on="validation"),
        seed=4,
    )
    history = run(e)
    apart = data.deal(e.population.groups, 2, 4)[0].validation
    weight, bias = history.layout.unpack(history.model.x).values()
    inputs, targets = apart.between(0, len(apart))
    hits = (inputs.flatten(1) @ weight.T + bias).argmax(1) == targets
    assert history.rounds[-1]["accuracy"] == pytest.approx(hits.double().mean().item())
    tested = run(replace(e, evaluation=Evaluation()))
    assert torch.equal(tested.model.x, history.model.x)  # scoring does not change training
    assert tested.rounds[-1]["accuracy"] != history.rounds[-1]["accuracy"]
