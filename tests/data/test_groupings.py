"""Partitions by values of the target, by similar inputs, by time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import fedtide
from fedtide.core.errors import ConfigError
from fedtide.core.rng import stream
from fedtide.core.types import Group
from fedtide.data.groupings import ByTime, Clusters, Quantiles
from fedtide.data.holdings import distribute
from fedtide.data.partition import Distinct, Iid, Shards


def numbers(count=120, **more):
    rng = np.random.default_rng(3)
    targets = rng.normal(size=(count, 2)).astype(np.float32)
    inputs = rng.normal(size=(count, 4)).astype(np.float32)
    return fedtide.from_tensors((inputs, targets), (inputs, targets), **more)


def held(dataset, partition, clients):
    """The examples of each client."""
    stores = distribute(dataset, partition, [Group(clients)], seed=5)
    return [stores.order[a:b] for a, b in pairwise(stores.offsets)]


def test_quantiles_of_the_target_are_dealt_like_labels():
    data = numbers()
    values = data.train.targets[:, 1].numpy()
    parts = held(data, Quantiles(bins=4, column=1, of=Distinct()), 4)
    edges = [(values[part].min(), values[part].max()) for part in parts]
    assert all(one[1] < other[0] for one, other in pairwise(edges))
    assert [len(part) for part in parts] == [30, 30, 30, 30]


def test_equal_targets_stay_in_one_bin():
    inputs, targets = np.zeros((6, 1), np.float32), np.array([1, 1, 1, 1, 2, 3], np.float32)
    data = fedtide.from_tensors((inputs, targets), (inputs, targets))
    assert Quantiles(bins=3).labels(data, stream(0)).tolist() == [0, 0, 0, 0, 2, 2]


def test_clusters_are_those_of_scikit_learn():
    """Where groups lie apart, k-means finds them, whatever the scale of a column."""
    rng = np.random.default_rng(1)
    centres = np.array([[0, 0], [9, 0], [0, 9000], [9, 9000]])
    truth = rng.integers(4, size=300)
    inputs = (centres[truth] + rng.normal(size=(300, 2)) * [1, 1000]).astype(np.float32)
    data = fedtide.from_tensors(
        (inputs, truth.astype(np.float32)), (inputs, truth.astype(np.float32))
    )
    found = Clusters(clusters=4).labels(data, stream(0))
    theirs = KMeans(4, n_init=5, random_state=0).fit_predict(inputs / inputs.std(0))
    assert adjusted_rand_score(found, theirs) == 1
    assert len(held(data, Clusters(clusters=4, of=Shards(per_client=1)), 4)) == 4


def test_time_cuts_periods():
    days = np.random.default_rng(2).permutation(120)
    parts = held(numbers(times=days), ByTime(), 3)
    assert [sorted(days[part]) for part in parts] == [list(range(k, k + 40)) for k in (0, 40, 80)]
    parts = held(numbers(), ByTime(), 3)
    assert [sorted(part) for part in parts] == [list(range(k, k + 40)) for k in (0, 40, 80)]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Quantiles(bins=1), "data.partition.bins must be at least 2. Got 1"),
        (lambda: Quantiles(of="natural"), None),
        (lambda: Quantiles(of="no such"), "data.partition.of: 'no such' is not known"),
        (
            lambda: held(numbers(), Quantiles(column=2), 2),
            "must be a place among the 2 numbers of a target",
        ),
        (
            lambda: held(numbers(), Clusters(clusters=200), 2),
            "at most 120, the number of training examples",
        ),
        (lambda: held(numbers(), Distinct(), 2), "needs no labels, .* 'iid', .* or 'quantiles'"),
    ],
)
def test_what_cannot_be_is_said(make, sentence):
    if sentence is None:
        assert make()
        return
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_labels_are_split_as_before():
    data = numbers()
    assert len(held(data, Iid(), 3)) == 3
    assert torch.equal(data.train.targets, numbers().train.targets)
