"""Clients of parabolas leave and return: every number by hand. See `quadratic`."""

import numpy as np
import pytest
import torch

from fedtide.algorithms.afa import AfaCS
from fedtide.algorithms.base import Change
from fedtide.algorithms.fedau import FedAU
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fedvarp import FedVarp
from fedtide.algorithms.mifa import Mifa
from fedtide.algorithms.modified import ModifiedAfaCD, ModifiedFedAvg
from fedtide.algorithms.osafl import Osafl
from fedtide.algorithms.scaffold import Scaffold
from tests.algorithms.quadratic import Parabolas
from tests.worlds import train_cohort


def change(world, present, left=(), came=()):
    """Tell the server who exists now."""
    down = world.algorithm.broadcast(world.server)
    sums = (world.engine.row_sum(world.algorithm, np.array(c, int), down) for c in (left, came))
    told = Change(torch.tensor(present), world.population, *sums, False)
    world.server = world.algorithm.changed(world.server, told)
    world.population = len(present)


def test_mifa():
    """One step each from 0 to 4, 2 and 0 leaves rows -8, -4, 0 over lr: g = -4, 2, 0 times -1."""
    world = Parabolas(Mifa(), [4.0, 2.0, 0.0])
    world.round([0, 1, 2], [1, 1, 1])  # rows x - y over lr: -4, -2, 0; x = 0 + 0.5 * 2
    assert world.server.g.item() == pytest.approx(-2.0)
    assert world.server.x.item() == pytest.approx(1.0)
    change(world, [1, 2], left=[0])
    assert world.server.g.item() == pytest.approx(-1.0)
    assert world.server.seen.item() == 2
    world.round([2], [1])  # from 1 to 0.5: its row is 1; the mean of -2 and 1 is -0.5
    assert world.server.x.item() == pytest.approx(1.25)
    change(world, [0, 1, 2], came=[0])  # back with the row it left with: (-4 - 2 + 1) / 3
    assert world.server.g.item() == pytest.approx(-5 / 3)
    assert world.server.seen.item() == 3


@pytest.mark.parametrize(
    ("algorithm", "mean", "whole", "rest"),
    [
        (FedVarp(), lambda s: s.y, 1.0, 0.5),  # rows are updates: 2, 1, 0
        (AfaCS(), lambda s: s.g, -2.0, -1.0),  # rows are gradients: -4, -2, 0
        (Scaffold(), lambda s: s.c, -2.0, -1.0),  # the same
    ],
)
def test_means_without_those_who_left(algorithm, mean, whole, rest):
    world = Parabolas(algorithm, [4.0, 2.0, 0.0])
    world.round([0, 1, 2], [1, 1, 1])
    assert mean(world.server).item() == pytest.approx(whole)
    x = world.server.x.clone()
    change(world, [1, 2], left=[0])
    assert mean(world.server).item() == pytest.approx(rest)
    assert torch.equal(world.server.x, x)  # the model stays
    change(world, [0, 1, 2], came=[0])
    assert mean(world.server).item() == pytest.approx(whole)


@pytest.mark.parametrize(
    ("algorithm", "step"),
    [
        # The last gradient -2 of client 1 alone; as it is the mean, its score is 1.
        (Osafl(server_lr=1.0), lambda x: x + 0.5 * 2),
        (ModifiedAfaCD(server_lr=0.2), lambda x: x + 0.2 * 2),
        (ModifiedFedAvg(), lambda x: 1.0),  # the model that client 1 has sent
    ],
)
def test_tables_without_those_who_left(algorithm, step):
    world = Parabolas(algorithm, [4.0, 2.0])
    world.round([0, 1], [1, 1])
    change(world, [1], left=[0])
    assert world.server.last.ids[world.server.last.here].tolist() == [1]
    world.server = world.server._replace(x=torch.zeros_like(world.server.x))
    world.round([1], [1])  # again from 0, so that its contribution is the same again
    assert world.server.x.item() == pytest.approx(step(0.0))


def test_fedau_counts_from_the_round_in_which_a_client_came():
    """Ages say that client 1 came in this round: its first interval is 1 and its weight 1, not 50."""
    world = Parabolas(FedAU(cutoff=50), [4.0, 2.0])
    for _ in range(60):
        world.round([0], [1])
    down = world.algorithm.broadcast(world.server)
    one = np.array([1])
    for age, weight in ((0, 1.0), (49, 1.0), (60, 50.0)):  # cut at 50: an interval that is over
        ages = np.array([age])
        done = train_cohort(
            world.engine, world.algorithm, world.rule, 0.5, down, {}, one, one, 60, ages=ages
        )
        assert done.up.omega.item() == weight


def test_feddyn_settles_at_the_optimum_of_those_who_stay():
    """Two of three parabolas leave: the model must end at the bottom of the third, and nowhere else."""
    world = Parabolas(FedDyn(alpha=0.5), [6.0, 0.0, 3.0])
    for _ in range(30):
        world.round([0, 1, 2], [5, 5, 5])
    assert world.server.x.item() == pytest.approx(3.0, abs=0.05)
    before = world.server
    change(world, [0], left=[1, 2])
    assert torch.equal(world.server.h, before.h)  # nothing jumps
    for _ in range(60):
        world.round([0], [5])
    assert world.server.x.item() == pytest.approx(6.0, abs=0.05)
