"""Stores that change: arrivals, first in first out, drift, and the pool of all of them."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.data.holdings import Fifo, Pace, Pooled, Static
from fedtide.data.stores import Arriving, StaticStores

CLIENTS = 4
ALL = np.arange(CLIENTS)


def fifo(chance=0.5, length=30, seed=3):
    """Client u's stream is 1000 u, 1000 u + 1, ...; capacities 3, 4, 5, 6, three slots each."""
    order = np.concatenate([1000 * u + np.arange(length) for u in ALL])
    full = np.array([3, 4, 5, 6])
    pace = Pace(full, full, np.full(CLIENTS, 3), np.full(CLIENTS, chance))
    return Fifo(Static(order, np.arange(CLIENTS + 1) * length), pace, seed)


def store(holdings, t, u):
    """What client u holds, oldest first."""
    size = int(holdings.sizes(t, np.array([u]))[0])
    return holdings.examples(t, np.array([u]), np.arange(size)[None])[0].tolist()


def test_first_in_first_out_by_hand():
    """With certain arrivals three examples come and the three oldest go, every round."""
    holdings = fifo(chance=1.0)
    assert store(holdings, 0, 1) == [1000, 1001, 1002, 1003]
    assert store(holdings, 1, 1) == [1003, 1004, 1005, 1006]
    assert store(holdings, 5, 1) == [1015, 1016, 1017, 1018]
    assert store(holdings, 9, 1) == [1026, 1027, 1028, 1029]  # the stream ends
    assert store(holdings, 99, 1) == [1026, 1027, 1028, 1029]


@given(rounds=st.lists(st.integers(0, 12), min_size=1, max_size=8), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_store_depends_on_nothing_but_seed_round_and_client(rounds, data):
    """Asked in any order, about any clients, forth and back: the answers of one who is asked but once."""
    walked = fifo()
    for t in rounds:
        some = data.draw(st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=5))
        ids = np.array(some)
        alone = [store(fifo(), t, u) for u in some]
        assert walked.sizes(t, ids).tolist() == [len(one) for one in alone]
        assert [store(walked, t, u) for u in some] == alone
        assert set(walked.held(t, ids)) == {e for one in alone for e in one}


def test_stores_in_another_process_count_arrivals_in_arrays_of_their_own():
    """Arrays larger than a few bytes come out of Ray's object store read-only."""
    here, buffers = fifo(), []
    here.sizes(5, ALL)
    sent = pickle.dumps(here, protocol=5, buffer_callback=buffers.append)
    there = pickle.loads(sent, buffers=[bytes(buffer) for buffer in buffers])
    assert not there.stream.order.flags.writeable
    assert [store(there, 9, u) for u in ALL] == [store(here, 9, u) for u in ALL]


def test_nothing_changes_within_a_round_and_much_between():
    holdings = fifo()
    seen = [tuple(store(holdings, t, 2)) for t in range(12)]
    assert seen == [tuple(store(holdings, t, 2)) for t in range(12)]
    assert len(set(seen)) > 6
    for before, after in pairwise(seen):
        assert len(after) == len(before) == 5
        assert 0 <= after[0] - before[0] <= 3  # at most three arrive, in order


def test_arrivals_are_binomial():
    """Mean 3 * 0.5 and variance 3 * 0.25 of 4000 draws, within four standard errors."""
    pace = fifo().pace
    draws = np.array([pace.arrivals(t, ALL, 8) for t in range(1, 1001)])
    assert abs(draws.mean() - 1.5) < 4 * np.sqrt(0.75 / draws.size)
    assert abs(draws.var() - 0.75) < 0.07
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.13  # clients do not know of each other


def test_ever_and_labels():
    holdings = fifo(chance=1.0, length=8)
    assert sorted(holdings.ever(0, np.array([0]))) == list(range(8))
    assert sorted(holdings.ever(1, np.array([0]))) == list(range(3, 8))  # three are gone for good
    targets = np.zeros(4000, dtype=np.int64)
    targets[1] = 1
    assert holdings.labels(targets, 2).tolist() == [[2, 1], [4, 0], [5, 0], [6, 0]]


def test_empty_stores():
    """They start empty, and without slots stay so."""
    given = Static(np.arange(20), np.array([0, 10, 10, 20]))
    stores = Arriving(capacity=(4, 4), initial=0.0, slots=2, chance=(1.0, 1.0))
    holdings = stores.holdings(given, np.arange(20) % 2, seed=0)
    assert holdings.sizes(0, np.arange(3)).tolist() == [0, 0, 0]
    assert holdings.held(0, np.arange(3)).tolist() == []
    assert holdings.sizes(1, np.arange(3)).tolist() == [2, 0, 2]
    assert holdings.sizes(9, np.arange(3)).tolist() == [4, 0, 4]


def test_settings_become_paces():
    pace = Arriving(capacity=(320, 640), slots=32, chance=(0.3, 0.8)).pace(5000, seed=1)
    assert (pace.capacity.min(), pace.capacity.max()) == (320, 640)
    assert 0.3 <= pace.chance.min() < 0.31
    assert 0.79 < pace.chance.max() < 0.8
    assert np.array_equal(pace.slots, np.ceil(32 * pace.chance))
    assert np.array_equal(pace.first, pace.capacity)
    assert np.array_equal(
        Arriving(initial=0.5).pace(9, 1).first, Arriving().pace(9, 1).capacity // 2
    )


def test_streams_hold_what_was_given_in_random_order():
    given = Static.of_owners(np.random.default_rng(0).integers(0, 3, 90), 3)
    holdings = Arriving().holdings(given, np.arange(90) % 5, seed=2)
    for u in range(3):
        mine = given.order[given.offsets[u] : given.offsets[u + 1]]
        stream = holdings.stream.order[given.offsets[u] : given.offsets[u + 1]]
        assert sorted(stream) == sorted(mine)
        assert stream.tolist() != mine.tolist()
    assert StaticStores().holdings(given, np.arange(90), 0) is given


@pytest.mark.parametrize(("drift", "changes"), [(1.0, 4), (0.0, 30)])
def test_drift(drift, changes):
    """With drift 1 each of 5 labels comes in one stretch, in an order of the client's own."""
    given, targets = Static(np.arange(200), np.array([0, 100, 200])), np.arange(200) % 5
    holdings = Arriving(drift=drift).holdings(given, targets, seed=2)
    labels = targets[holdings.stream.order].reshape(2, 100)
    turns = (labels[:, 1:] != labels[:, :-1]).sum(1)
    assert (turns == changes).all() if drift else (turns > changes).all()
    if drift:
        assert labels[0, ::20].tolist() != labels[1, ::20].tolist()


def test_the_genie_holds_everything():
    holdings = fifo()
    genie, one = Pooled(holdings), np.array([0])
    for t in (0, 4, 2):
        assert genie.sizes(t, one).tolist() == [18]
        whole = genie.examples(t, one, np.arange(18)[None])[0]
        assert sorted(whole) == sorted(e for u in ALL for e in store(holdings, t, u))
    targets = np.arange(4000) % 2
    assert genie.labels(targets, 2).tolist() == [holdings.labels(targets, 2).sum(0).tolist()]
    assert sorted(genie.ever(0, one)) == sorted(holdings.stream.order)
    assert genie.clients == 1
