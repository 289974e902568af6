"""Which examples a client sees in which step."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.types import Examples
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static

sizes_of = st.lists(st.integers(0, 23), min_size=1, max_size=6)


def client_data(sizes, seed=3, **batching):
    owners = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(0).permutation(len(owners))  # stores are not in one piece
    examples = Examples(torch.zeros(len(owners), 1), torch.zeros(len(owners)))
    holdings = Static.of_owners(owners[order], len(sizes))
    return ClientData(examples, holdings, Batching(**batching), seed)


def picked(data, ids, t=0, purpose="batch", steps=None):
    """For each client its batches, as lists of the examples that count."""
    ids = np.array(ids)
    steps = data.steps(t, ids) if steps is None else np.array(steps)
    picks = data.picks(t, ids, steps, purpose)
    assert picks.places.shape == picks.mask.shape
    assert picks.places.shape[:2] == (len(ids), steps.max(initial=0))
    return [
        [picks.places[u, k][picks.mask[u, k]].tolist() for k in range(count)]
        for u, count in enumerate(steps)
    ]


def flat(batches):
    return list(chain.from_iterable(batches))


def store(data, client):
    return sorted(data.holdings.held(0, np.array([client])).tolist())


# By hand


def test_available_steps():
    """Ten, four, three and no examples in batches of four: 3, 1, 1, 0 per pass."""
    sizes = np.array([10, 4, 3, 0])
    assert Batching(batch_size=4, epochs=1).available(sizes).tolist() == [3, 1, 1, 0]
    assert Batching(batch_size=4, epochs=3).available(sizes).tolist() == [9, 3, 3, 0]
    assert Batching(batch_size=4, steps=2).available(sizes).tolist() == [2, 1, 1, 0]
    replaced = Batching(batch_size=4, steps=2, sampling="replacement")
    assert replaced.available(sizes).tolist() == [2, 2, 2, 0]


def test_sizes_of_batches():
    data = client_data([10, 4, 3], batch_size=4, epochs=2)
    lengths = [[len(batch) for batch in client] for client in picked(data, [0, 1, 2])]
    assert lengths == [[4, 4, 2, 4, 4, 2], [4, 4], [3, 3]]


def test_rows_that_only_fill_the_shape_are_examples_of_the_client():
    data = client_data([10, 4, 3], batch_size=4, epochs=1)
    ids = np.arange(3)
    places, mask, _ = data.picks(0, ids, data.steps(0, ids), "batch")
    assert mask.dtype == bool
    assert mask[2, 0].tolist() == [True, True, True, False]
    for client in ids:
        assert set(places[client, : data.steps(0, ids)[client]].ravel()) <= set(store(data, client))


def test_at_most_k_batches_of_one_pass():
    """Two steps of four: a client with three has one batch of three, one with ten leaves two unseen."""
    data = client_data([10, 3, 6], batch_size=4, steps=2)
    large, small, middle = picked(data, [0, 1, 2])
    assert [len(batch) for batch in large] == [4, 4]
    assert len(set(flat(large))) == 8
    assert [len(batch) for batch in small] == [3]
    assert [len(batch) for batch in middle] == [4, 2]
    assert sorted(flat(middle)) == store(data, 2)


def test_replacement_always_fills_its_batches():
    data = client_data([10, 1], batch_size=4, steps=3, sampling="replacement")
    large, small = picked(data, [0, 1])
    assert [len(batch) for batch in large] == [4, 4, 4]
    assert set(flat(large)) <= set(store(data, 0))
    assert set(flat(small)) == set(store(data, 1))


def test_replacement_draws_every_example_equally_often():
    """10 examples drawn 8,000 times: within five standard deviations of 800."""
    data = client_data([10], batch_size=40, steps=200, sampling="replacement")
    counts = np.unique(flat(picked(data, [0])[0]), return_counts=True)[1]
    assert len(counts) == 10
    assert np.abs(counts - 800).max() < 5 * np.sqrt(8000 * 0.1 * 0.9)


# Laws


@given(sizes=sizes_of, batch_size=st.integers(1, 9), epochs=st.integers(1, 3), t=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_an_epoch_sees_every_example_once(sizes, batch_size, epochs, t):
    data = client_data(sizes, batch_size=batch_size, epochs=epochs)
    ids = [client for client, size in enumerate(sizes) if size]
    if not ids:
        return
    for client, batches in zip(ids, picked(data, ids, t), strict=True):
        per_pass = len(batches) // epochs
        assert per_pass * epochs == len(batches)
        for epoch in range(epochs):
            seen = flat(batches[epoch * per_pass : (epoch + 1) * per_pass])
            assert sorted(seen) == store(data, client)


@given(data=st.data(), sizes=st.lists(st.integers(1, 23), min_size=2, max_size=6))
@settings(max_examples=80, deadline=None)
def test_a_client_draws_for_itself(data, sizes):
    """Its batches depend neither on who else takes part nor on how many steps are granted."""
    kind = data.draw(
        st.sampled_from(
            [{"epochs": 2}, {"steps": 3}, {"steps": 3, "sampling": "replacement"}, {"epochs": 1}]
        )
    )
    world = client_data(sizes, batch_size=4, **kind)
    everyone = picked(world, range(len(sizes)), t=5)
    some = data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(1, len(sizes)))]
    granted = [data.draw(st.integers(1, len(everyone[client]))) for client in some]
    for client, count, batches in zip(
        some, granted, picked(world, some, 5, steps=granted), strict=True
    ):
        assert batches == everyone[client][:count]


@pytest.mark.parametrize(
    "kind", [{"epochs": 2}, {"steps": 3}, {"steps": 3, "sampling": "replacement"}]
)
def test_every_part_of_the_address_counts(kind):
    sizes = [20, 20]
    data = client_data(sizes, batch_size=4, **kind)
    here = picked(data, [0])
    assert picked(client_data(sizes, batch_size=4, **kind), [0]) == here
    assert picked(client_data(sizes, seed=4, batch_size=4, **kind), [0]) != here
    assert picked(data, [0], t=1) != here
    assert picked(data, [0], purpose="probe") != here
    assert [store(data, 1).index(e) for e in flat(picked(data, [1])[0])] != [
        store(data, 0).index(e) for e in flat(here[0])
    ]


def test_epochs_are_shuffled_anew():
    (batches,) = picked(client_data([20], batch_size=20, epochs=2), [0])
    assert batches[0] != batches[1]
