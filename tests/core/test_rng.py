"""Every random number has an address."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.rng import _mixed, bits, key, shuffles, stream, torch_seed, uniforms

clients = st.lists(st.integers(0, 2**62), min_size=1, max_size=8, unique=True)


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


# Addresses


def test_equal_addresses_give_equal_numbers():
    one, other = (stream(7, "batch", 3, 5).random(4) for _ in range(2))
    assert one.tolist() == other.tolist()
    assert torch_seed(7, "model") == torch_seed(7, "model")


def test_different_addresses_give_different_numbers():
    addresses = [
        (0,), (1,), (0, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", "1"), (0, 1, "a"),
        (0, "a", 1, 2), (0, "a", 12), (0, "a", 2, 1), (1, "a", 0), (-1, "a"),
    ]  # fmt: skip
    assert len({key(*address) for address in addresses}) == len(addresses)
    assert len({stream(*address).integers(2**62) for address in addresses}) == len(addresses)
    assert len({torch_seed(*address) for address in addresses}) == len(addresses)


def test_numbers_do_not_change_from_version_to_version():
    """Published results hang on them."""
    assert key(0, "batch", 1) == 0x93EB32F0C101518F257623D942A3D6ED
    words = bits(0, "batch", 1, ids=ids(0, 1), count=1)
    assert words[:, 0].tolist() == [0x9496489A0B42D4A5, 0x427CEEB26498C2A4]
    assert shuffles(0, "batch", 1, ids=ids(0), sizes=ids(6)).tolist() == [[5, 3, 0, 4, 1, 2]]
    assert torch_seed(0, "model") == 4944541591374848758
    assert stream(0, "cohort", 0).integers(1000, size=4).tolist() == [367, 955, 302, 162]


def test_the_mixing_is_that_of_splitmix64():
    """The first outputs of the reference implementation (Vigna, splitmix64.c) from the state 0."""
    states = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert _mixed(states).tolist() == expected


def test_torch_seeds_fit():
    assert all(0 <= torch_seed(seed, "model") < 2**63 for seed in range(100))


# Rows


@given(cohort=clients, data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_row_depends_on_its_client_alone(cohort, data):
    """Neither on who else is drawn, nor in which order, nor on how many numbers are asked for."""
    everyone = uniforms(1, "x", 2, ids=ids(*cohort), count=9)
    some = data.draw(st.permutations(cohort))[: data.draw(st.integers(1, len(cohort)))]
    count = data.draw(st.integers(1, 9))
    rows = uniforms(1, "x", 2, ids=ids(*some), count=count)
    for client, row in zip(some, rows, strict=True):
        assert row.tolist() == everyone[cohort.index(client), :count].tolist()


@given(cohort=clients, data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_shuffle_depends_on_its_client_alone(cohort, data):
    sizes = ids(*(data.draw(st.integers(0, 40)) for _ in cohort))
    everyone = shuffles(1, "x", 2, ids=ids(*cohort), sizes=sizes)
    assert everyone.shape == (len(cohort), max(1, sizes.max()))
    for u, client in enumerate(cohort):
        alone = shuffles(1, "x", 2, ids=ids(client), sizes=sizes[u : u + 1])
        row = everyone[u, : sizes[u]].tolist()
        assert row == alone[0, : sizes[u]].tolist()
        assert sorted(row) == list(range(sizes[u]))


def test_rows_differ():
    everyone = bits(3, "x", ids=np.arange(5000), count=4)
    assert everyone.dtype == np.uint64
    assert len(np.unique(everyone)) == everyone.size


# Chance


def chi_square(counts, shares=None):
    """How far counts are from what they should be; about its degrees of freedom, if by chance."""
    expected = counts.sum() * (1 / counts.size if shares is None else shares)
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("axis", ["clients", "numbers", "rounds", "seeds"])
def test_numbers_are_uniform_along_every_part_of_the_address(axis):
    """20,000 numbers in 100 bins: 99 degrees of freedom, standard deviation 14; 170 is five of them."""
    if axis == "clients":
        drawn = uniforms(0, "x", 0, ids=np.arange(20_000), count=1)
    elif axis == "numbers":
        drawn = uniforms(0, "x", 0, ids=ids(4), count=20_000)
    elif axis == "rounds":
        drawn = np.concatenate(
            [uniforms(0, "x", t, ids=np.arange(40), count=1) for t in range(500)]
        )
    else:
        drawn = np.concatenate(
            [uniforms(s, "x", 0, ids=np.arange(40), count=1) for s in range(500)]
        )
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=100, range=(0, 1))
    assert 40 < chi_square(counts) < 170
    assert abs(drawn.mean() - 0.5) < 5 / np.sqrt(12 * drawn.size)


def test_neighbours_are_independent():
    """Correlations of 20,000 pairs lie within five standard deviations, 5 / sqrt(20,000)."""
    drawn = uniforms(5, "x", ids=np.arange(20_001), count=3)
    between_clients = np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]
    between_numbers = np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]
    other_round = uniforms(6, "x", ids=np.arange(20_001), count=1)[:, 0]
    between_seeds = np.corrcoef(drawn[:, 0], other_round)[0, 1]
    assert max(map(abs, (between_clients, between_numbers, between_seeds))) < 0.036


def test_every_bit_is_fair():
    words = bits(0, "x", ids=np.arange(10_000), count=1)[:, 0]
    shares = [float(((words >> np.uint64(b)) & np.uint64(1)).mean()) for b in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 0.025  # five standard deviations


def test_shuffles_are_unbiased():
    """All 24 orders of four: 23 degrees of freedom, standard deviation 6.8; 60 is more than five."""
    orders = shuffles(0, "x", ids=np.arange(12_000), sizes=np.full(12_000, 4))
    places = {order: n for n, order in enumerate(permutations(range(4)))}
    counts = np.bincount([places[tuple(order)] for order in orders.tolist()], minlength=24)
    assert chi_square(counts) < 60


def test_long_shuffles_put_everything_everywhere():
    """Where the first of 50 examples ends up, over 10,000 clients with stores of different sizes."""
    sizes = np.where(np.arange(10_000) % 2, 50, 900)
    orders = shuffles(0, "x", ids=np.arange(10_000), sizes=sizes)[1::2, :50]
    counts = np.bincount(np.nonzero(orders == 0)[1], minlength=50)
    assert counts.sum() == 5000
    assert chi_square(counts) < 49 + 5 * np.sqrt(98)
