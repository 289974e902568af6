"""Robust rules on numbers small enough to follow by hand."""

import math

import numpy as np
import pytest
import torch

from fedtide.guard import defences
from fedtide.guard.attacks import Alie, LabelFlip, Noise, SignFlip, largest_z
from fedtide.guard.defences import (
    DEFENCES,
    Clipped,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    PlainMean,
    TrimmedMean,
    clipped,
    lengths,
)

# Four honest clients around (1, 2), one far away.
ROWS = torch.tensor([[1.0, 2.0], [1.1, 2.0], [0.9, 2.1], [1.0, 1.9], [-50.0, 90.0]])
EVEN = torch.full((5,), 0.2)


def test_the_median_of_each_coordinate():
    """(-50, .9, 1, 1, 1.1) -> 1 and (1.9, 2, 2, 2.1, 90) -> 2; of four: (1 + 1) / 2 and (2 + 2) / 2."""
    assert Median().combined(ROWS, EVEN).tolist() == [1.0, 2.0]
    assert Median().combined(ROWS[:4], EVEN[:4]).tolist() == pytest.approx([1.0, 2.0])
    two = torch.tensor([[1.0], [3.0]])
    assert Median().combined(two, torch.tensor([0.9, 0.1])).tolist() == [2.0]  # unweighted


def test_the_trimmed_mean_leaves_out_one_on_each_side():
    """(0.9 + 1 + 1) / 3 and (2 + 2 + 2.1) / 3."""
    got = TrimmedMean(share=0.2).combined(ROWS, EVEN).tolist()
    assert got == pytest.approx([2.9 / 3, 6.1 / 3])
    assert TrimmedMean(share=0.1).combined(ROWS, EVEN).tolist() == pytest.approx(
        ROWS.mean(0).tolist()
    )


def test_krum_takes_the_client_with_the_nearest_neighbours():
    """U = 5, f = 1, two neighbours count: .02 for client 0, .03 for 1 and 3, .05 or more for 2 and 4."""
    assert Krum(share=0.2).combined(ROWS, EVEN).tolist() == [1.0, 2.0]
    got = MultiKrum(share=0.2).combined(ROWS, EVEN).tolist()
    assert got == pytest.approx([1.0, 2.0])  # the mean of the four
    assert Krum(share=0.0).combined(ROWS[:1], EVEN[:1]).tolist() == [1.0, 2.0]  # one client


def test_clipping_keeps_directions():
    """(3, 4) has length 5; cut to 1 it is (0.6, 0.8)."""
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    got = Clipped(norm=1.0).combined(rows, torch.tensor([0.5, 0.5])).tolist()
    assert got == pytest.approx([0.3, 0.65])
    # without a norm: the median length, 0.5 of {0.5, 5}
    got = Clipped().combined(rows, torch.tensor([0.5, 0.5])).tolist()
    assert got == pytest.approx([0.15, 0.45])


def test_the_geometric_median_has_the_least_summed_distance():
    got = GeometricMedian(steps=100).combined(ROWS, EVEN)

    def cost(point):
        return float((ROWS - point).norm(dim=1).sum())

    for step in torch.tensor([[0.01, 0], [-0.01, 0], [0, 0.01], [0, -0.01]]):
        assert cost(got) <= cost(got + step)
    # In a line of three the middle one; the mean would be 34.
    line = torch.tensor([[0.0], [2.0], [100.0]])
    got = GeometricMedian(steps=200).combined(line, torch.full((3,), 1 / 3))
    assert float(got) == pytest.approx(2.0, abs=1e-3)


def test_the_geometric_median_is_the_same_however_far_away_hostile_uploads_are():
    """Three of thirty in one direction: how far hardly matters."""
    honest = torch.randn(27, 50, generator=torch.Generator().manual_seed(1)) + 1.0
    away, weights = torch.ones(3, 50), torch.full((30,), 1 / 30)
    near = GeometricMedian().combined(torch.cat([honest, 1e3 * away]), weights)
    assert float((near - honest.mean(0)).norm()) < 1.0
    for scale in (1e6, 1e9, 1e20, 3e38):
        got = GeometricMedian().combined(torch.cat([honest, scale * away]), weights)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, near, rtol=0, atol=1e-2)


def test_the_geometric_median_without_float64(monkeypatch):
    monkeypatch.setattr(defences, "widest", lambda tensor: torch.float32)
    for scale in (1e9, 1e20, 3e38):
        rows = torch.cat([ROWS[:4], torch.full((1, 2), scale)])
        assert GeometricMedian().combined(rows, EVEN).tolist() == pytest.approx([1, 2], abs=0.2)


def test_the_geometric_median_stops_where_most_uploads_are_equal():
    rows = torch.cat([torch.ones(4, 3), torch.full((3, 3), 9.0)])
    got = GeometricMedian().combined(rows, torch.full((7,), 1 / 7))
    torch.testing.assert_close(got, torch.ones(3), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", sorted(set(DEFENCES) - {"mean"}))
@pytest.mark.parametrize("size", [1e20, -3e38])
def test_one_row_of_huge_numbers(kind, size):
    """Its length does not fit into float32; what the other four send is near (1, 2)."""
    rows = torch.cat([ROWS[:4], torch.tensor([[size, size]])])
    got = DEFENCES[kind]().combined(rows, EVEN)
    assert float((got - torch.tensor([1.0, 2.0])).abs().max()) < 1.0


def test_lengths_and_cuts_of_huge_rows():
    rows = torch.tensor([[3e38, 3e38], [0.3, 0.4]])
    assert lengths(rows).tolist() == pytest.approx([3e38 * math.sqrt(2), 0.5], rel=1e-6)
    cut = clipped(rows, 1.0)
    assert cut[0].tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    assert torch.equal(cut[1], rows[1])


def test_cohorts_that_are_too_small_to_defend():
    """Trimming needs one hostile client in the share, Krum also 2 f + 3 clients."""
    assert "less than one" in TrimmedMean(share=0.1).problem(9)
    assert not TrimmedMean(share=0.12).problem(9)
    assert "less than one" in Krum(share=0.1).problem(9)
    assert not Krum(share=0.4).problem(9)  # f = 3: 9
    assert "4 hostile clients Krum needs at least 11" in MultiKrum(share=0.4).problem(10)
    assert not any(kind().problem(1) for kind in (PlainMean, Median, Clipped, GeometricMedian))


def test_too_small_a_cohort_lets_hostile_clients_choose():
    """Why Krum needs 2 f + 3: of five, two that say the same are nearest to each other."""
    rows = torch.cat([ROWS[:3], torch.full((2, 2), -9.0)])
    assert Krum(share=0.4).combined(rows, EVEN).tolist() == [-9.0, -9.0]
    assert Krum(share=0.4).problem(5)


@pytest.mark.parametrize("kind", sorted(set(DEFENCES) - {"krum"}))
def test_equal_uploads_give_that_upload(kind):
    rows = torch.tensor([[1.0, -2.0, 3.0]]).expand(7, -1)
    got = DEFENCES[kind]().combined(rows, torch.full((7,), 1 / 7))
    torch.testing.assert_close(got, rows[0])


def test_without_a_defence_it_is_the_weighted_mean():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0])
    assert torch.equal(PlainMean().combined(ROWS, weights), weights @ ROWS)


def test_hostile_clients_are_an_exact_share_and_always_the_same():
    who = SignFlip(share=0.2).members(100, seed=1)
    assert len(who) == len(set(who.tolist())) == 20
    assert np.array_equal(who, Noise(share=0.2).members(100, seed=1))
    assert not np.array_equal(who, SignFlip(share=0.2).members(100, seed=2))
    assert len(SignFlip(share=0.0).members(100, seed=1)) == 0


def test_attacks_by_hand():
    hostile = torch.tensor([False, False, True])
    rows = torch.tensor([[1.0, 2.0], [3.0, 2.0], [9.0, 9.0]])
    assert SignFlip(scale=2.0).rows(rows, hostile, 0, 0).tolist() == [[1, 2], [3, 2], [-18, -18]]
    # ALIE: mean (2, 2), std (sqrt 2, 0) of the honest; n = 3, m = 1: s = 1, share 1/2, z = 0 -> the mean
    assert largest_z(3, 1) == pytest.approx(0.0)
    got = Alie(z=1.5).rows(rows, hostile, 0, 0)[2].tolist()
    assert got == pytest.approx([2 - 1.5 * math.sqrt(2), 2.0])
    # n = 50, m = 12: s = 14, share 24/38; the normal quantile of 0.63158 is 0.3360
    assert largest_z(50, 12) == pytest.approx(0.3360, abs=1e-4)
    noise = Noise(scale=10.0).rows(rows, hostile, 0, 0)
    assert torch.equal(noise[:2], rows[:2])
    assert float(noise[2].norm()) == pytest.approx(10 * float(rows.norm(dim=1).mean()), rel=1e-5)
    assert LabelFlip().targets(torch.tensor([0, 3, 9]), 10).tolist() == [9, 6, 0]
