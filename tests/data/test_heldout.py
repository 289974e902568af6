"""Test examples of single clients: a share of what each holds, or those of its owner."""

import numpy as np
import pytest

import fedtide
from fedtide.core.errors import ConfigError
from fedtide.core.types import Group
from fedtide.data.source import Data


def numbers(train, test=None, **more):
    """Examples whose input is their position."""

    def part(count, first):
        rows = np.arange(first, first + count, dtype=np.float32)[:, None]
        return rows, rows[:, 0]

    return fedtide.from_tensors(part(train, 0), part(test or 2, 1000), **more)


def dealt(data, clients=4, seed=0):
    dataset, holdings = data.deal(lambda _: [Group(clients)], 1, seed)
    ids = np.arange(clients)
    parts = [
        holdings.examples(0, ids[u : u + 1], np.arange(n)[None])[0]
        for u, n in enumerate(holdings.sizes(0, ids))
    ]
    return dataset, parts


@pytest.mark.parametrize("order", ["random", "last"])
def test_every_client_gives_a_share_of_its_own(order):
    data = Data(name=numbers(80), partition="iid", test_share=0.25, test_order=order)
    dataset, parts = dealt(data)
    whole = dealt(Data(name=numbers(80), partition="iid"))[1]
    tested = dataset.own.examples.inputs[:, 0].numpy().astype(int)
    for client, (left, before) in enumerate(zip(parts, whole, strict=True)):
        mine = tested[dataset.own.clients == client]
        assert sorted([*left, *mine]) == sorted(before)
        assert len(mine) == 5
        assert order == "random" or mine.min() > left.max()
    assert dataset.test.inputs[0, 0] == 1000  # the common test examples stay


def test_the_last_in_time_go_by_the_time_of_recording():
    times = -np.arange(40)
    data = Data(name=numbers(40, times=times), partition="iid", test_share=0.5, test_order="last")
    dataset, parts = dealt(data, clients=2)
    for client, left in enumerate(parts):
        mine = dataset.own.examples.inputs[dataset.own.clients == client, 0]
        assert mine.max() < left.min()


def test_owners_of_test_examples():
    """They belong to the client that alone holds the training examples of their owner."""
    keys = np.array([7, 7, 3, 3, 5, 5])
    own = numbers(6, 4, keys=keys, test_keys=[5, 7, 9, 3])
    dataset, parts = dealt(Data(name=own, partition="natural"), clients=3)
    owner = [keys[part[0]] for part in parts]
    assert [owner[c] if c >= 0 else None for c in dataset.own.clients] == [5, 7, None, 3]
    assert (
        dealt(Data(name=own, partition="iid"), clients=6)[0].own is None
    )  # no client has a whole owner
    assert dealt(Data(name=numbers(6), partition="iid"), clients=3)[0].own is None


def test_what_cannot_be_held_out():
    named = Data(name=numbers(6, 4, keys=[0] * 6, test_keys=[0] * 4), test_share=0.5)
    with pytest.raises(
        ConfigError, match=r"data.test_share must be 0, as 'own' says which test examples"
    ):
        dealt(named)
    with pytest.raises(ConfigError, match=r"large enough for an example of a client. Got 0.1"):
        dealt(Data(name=numbers(8), test_share=0.1))
    with pytest.raises(
        ConfigError, match=r"data.test_share must be a share of each client's examples in \[0, 1\)"
    ):
        Data(test_share=1.0)
