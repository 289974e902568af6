"""Each algorithm on parabolas, with the arithmetic beside it; see quadratic.py for the setting."""

from math import exp, log

import pytest
import torch

from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fednova import FedNova
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.moon import Memory, Moon
from fedtide.algorithms.scaffold import Scaffold
from fedtide.algorithms.server import ServerMomentum
from fedtide.core.types import Outputs
from fedtide.training.optimisers import Sgd
from tests.algorithms.quadratic import Parabolas

kinds = pytest.mark.parametrize("kind", ["loop", "vectorised"])


def close(*values):
    return pytest.approx(list(values), abs=1e-12)


@kinds
def test_fedavg(kind):
    """Clients with a = 1, 4 and 1, 3 examples, so shares of 1/4 and 3/4.

    Round 1: client 0 makes one step, 0 -> 0.5; client 1 two, 0 -> 2 -> 3.
             x = 0.5 / 4 + 3 * 3 / 4 = 2.375
    Round 2: one step each, to (2.375 + 1) / 2 = 1.6875 and (2.375 + 4) / 2 = 3.1875.
             x = 1.6875 / 4 + 3 * 3.1875 / 4 = 2.8125
    """
    game = Parabolas(FedAvg(), [1, 4], sizes=[1, 3], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.delta[:, 0].tolist() == close(0.5, 3)
    assert game.server.x.tolist() == close(2.375)
    game.round([0, 1], [1, 1])
    assert game.server.x.tolist() == close(2.8125)


@kinds
def test_the_training_loss_is_the_mean_over_all_examples_seen(kind):
    """Client with a = 4, two steps at y = 0 and y = 2: losses 8 and 2, mean 5."""
    game = Parabolas(FedAvg(), [4], sizes=[3], kind=kind)
    assert game.round([0], [2]).training.loss.tolist() == close(5)


@kinds
def test_fedavg_with_server_momentum(kind):
    """One client, a = 2, beta = 1/2.

    Round 1: y = 1,   delta = 1,   v = 1,             x = 0 + 1 = 1
    Round 2: y = 1.5, delta = 0.5, v = 0.5 + 0.5 = 1, x = 1 + 1 = 2
    """
    game = Parabolas(FedAvg(server=ServerMomentum(beta=0.5)), [2], kind=kind)
    game.round([0], [1])
    assert [*game.server.x.tolist(), *game.server.rule.v.tolist()] == close(1, 1)
    game.round([0], [1])
    assert [*game.server.x.tolist(), *game.server.rule.v.tolist()] == close(2, 1)


@kinds
def test_fedprox(kind):
    """mu = 1/2, a = 1, 4, shares 1/4 and 3/4.

    Client 0: 0 -> 0.5 (the proximal term is zero at x).
    Client 1: 0 -> 2, then gradient (2 - 4) + (2 - 0) / 2 = -1: 2 -> 2.5.
    x = 0.5 / 4 + 3 * 2.5 / 4 = 2
    """
    game = Parabolas(FedProx(mu=0.5), [1, 4], sizes=[1, 3], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.delta[:, 0].tolist() == close(0.5, 2.5)
    assert game.server.x.tolist() == close(2)
    assert done.training.loss.tolist() == close(0.5, 5)  # of the data alone: 1/2; (8 + 2) / 2


@kinds
def test_scaffold(kind):
    """a = 1, 4, 0, 0; N = 4 clients, of which the last is never seen. Sizes do not count.

    Round 1, clients 0 (K = 1) and 1 (K = 2), all variates 0:
      y_0 = 0.5, c_0 = 0 - 0 + (0 - 0.5) / (1 / 2) = -1
      y_1 = 3,   c_1 = (0 - 3) / (2 / 2) = -3
      x = (0.5 + 3) / 2 = 1.75, c = 0 + 2/4 * (-1 - 3) / 2 = -1
    Round 2, clients 1 (K = 1) and 2 (K = 2):
      1: direction (1.75 - 4) + 3 - 1 = -0.25, y = 1.875; c_1 = -3 + 1 - 0.125 * 2 = -2.25, dc = 0.75
      2: direction 1.75 - 0 - 1 = 0.75, y = 1.375; direction 0.375, y = 1.1875;
         c_2 = 0 + 1 + (1.75 - 1.1875) / 1 = 1.5625 = dc
      x = 1.75 + (0.125 - 0.5625) / 2 = 1.53125, c = -1 + 2/4 * (0.75 + 1.5625) / 2 = -0.421875
    """
    game = Parabolas(Scaffold(), [1, 4, 0, 0], sizes=[1, 3, 2, 1], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.dc[:, 0].tolist() == close(-1, -3)
    assert [*game.server.x.tolist(), *game.server.c.tolist()] == close(1.75, -1)
    done = game.round([1, 2], [1, 2])
    assert done.up.dx[:, 0].tolist() == close(0.125, -0.5625)
    assert done.up.dc[:, 0].tolist() == close(0.75, 1.5625)
    assert [*game.server.x.tolist(), *game.server.c.tolist()] == close(1.53125, -0.421875)


def test_scaffold_server_rate():
    """The first round above with eta_g = 2: x = 2 * 1.75; c does not care."""
    game = Parabolas(Scaffold(server_lr=2.0), [1, 4, 0, 0])
    game.round([0, 1], [1, 2])
    assert [*game.server.x.tolist(), *game.server.c.tolist()] == close(3.5, -1)


@kinds
def test_fedacg(kind):
    """lambda = 1/2, beta = 1, a = 1, 4. Sizes do not count.

    Round 1, from x' = 0: y_0 = 0.5; y_1 = 2, then (2 - 4) + (2 - 0) = 0: stays 2.
      m = (0.5 + 2) / 2 = 1.25, x = 1.25
    Round 2, one step each from x' = 1.25 + 1.25 / 2 = 1.875:
      y = 1.4375 and 2.9375, deltas -0.4375 and 1.0625, mean 0.3125
      m = 0.625 + 0.3125 = 0.9375, x = 1.25 + 0.9375 = 2.1875, the mean of both y
    """
    game = Parabolas(FedACG(lambda_=0.5, beta=1.0), [1, 4], sizes=[1, 3], kind=kind)
    game.round([0, 1], [1, 2])
    assert [*game.server.x.tolist(), *game.server.m.tolist()] == close(1.25, 1.25)
    done = game.round([0, 1], [1, 1])
    assert done.up.delta[:, 0].tolist() == close(-0.4375, 1.0625)
    assert [*game.server.x.tolist(), *game.server.m.tolist()] == close(2.1875, 0.9375)


@kinds
def test_feddyn(kind):
    """alpha = 1/2, a = 1, 4, 0; M = 3 clients. Sizes do not count.

    Round 1, clients 0 (one step) and 1 (two):
      y_0 = 0.5, g_0 = -0.5 / 2 = -0.25
      y_1: 2, then (2 - 4) + 2 / 2 = -1: 2.5, g_1 = -1.25
      h = -(1/2) (0.5 + 2.5) / 3 = -0.5, x = 1.5 + 0.5 * 2 = 2.5
    Round 2, clients 1 and 2, one step each:
      1: (2.5 - 4) + 1.25 = -0.25, y = 2.625, g_1 = -1.25 - 0.125 / 2 = -1.3125
      2: 2.5 - 0, y = 1.25, g_2 = 0 + 1.25 / 2 = 0.625
      h = -0.5 - (1/2) (0.125 - 1.25) / 3 = -0.3125, x = 1.9375 + 0.3125 * 2 = 2.5625
    """
    game = Parabolas(FedDyn(alpha=0.5), [1, 4, 0], sizes=[1, 3, 2], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.delta[:, 0].tolist() == close(0.5, 2.5)
    assert [*game.server.x.tolist(), *game.server.h.tolist()] == close(2.5, -0.5)
    done = game.round([1, 2], [1, 1])
    assert done.up.delta[:, 0].tolist() == close(0.125, -1.25)
    assert [*game.server.x.tolist(), *game.server.h.tolist()] == close(2.5625, -0.3125)


@kinds
def test_fednova(kind):
    """a = 1, 4, shares 1/4 and 3/4, one and three steps: y_0 = 0.5; y_1 = 2, 3, 3.5.

    tau_eff = 1 / 4 + 3 * 3 / 4 = 2.5, x = 2.5 * (0.5 / 1 / 4 + 3 * (3.5 / 3) / 4) = 2.5
    """
    game = Parabolas(FedNova(), [1, 4], sizes=[1, 3], kind=kind)
    game.round([0, 1], [1, 3])
    assert game.server.x.tolist() == close(2.5)


@kinds
def test_fednova_with_momentum(kind):
    """rho = 1/2, equal shares, one and two steps: ||a||_1 = 1 and 1 + 1.5 = 2.5.

    y_0 = 0.5; client 1: v = -4, y = 2; v = -4 / 2 - 2 = -4, y = 4
    tau_eff = (1 + 2.5) / 2 = 1.75, x = 1.75 * (0.5 / 1 + 4 / 2.5) / 2 = 1.8375
    """
    game = Parabolas(FedNova(), [1, 4], rule=Sgd(momentum=0.5), kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.walk.weight.tolist() == close(1, 2.5)
    assert game.server.x.tolist() == close(1.8375)


def test_moon_penalty():
    """tau = 1/2, mu = 3; the features are the model itself, a vector of the plane.

    z = (2, 0), z_glob = (0, 1), z_prev = (1, 0): cosines 0 and 1, so
    penalty = -3 log(e^0 / (e^0 + e^2)) = 3 log(1 + e^2)
    d cos(z, w) / dz = (w / |w| - cos(z, w) z / |z|) / |z|, that is (0, 1/2) for z_glob and 0 for z_prev;
    gradient = 3 sigmoid(2) * (0 - (0, 1/2)) / (1/2) = (0, -3 sigmoid(2)): towards the global model
    """

    def look(x):
        return Outputs(x[None], x[None])

    moon = Moon(mu=3.0, tau=0.5)
    y = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    down = Down(torch.tensor([0.0, 1.0], dtype=torch.float64))
    mine = Memory(torch.tensor([1.0, 0.0], dtype=torch.float64))
    penalty = moon.penalty(y, look(y), None, look, down, mine)
    assert penalty.tolist() == close(3 * log(1 + exp(2)))
    (gradient,) = torch.autograd.grad(penalty.sum(), y)
    assert gradient.tolist() == close(0, -3 / (1 + exp(-2)))


def test_moon_newcomer():
    """The received model stands in for the previous one: penalty mu log 2, no gradient."""

    def look(x):
        return Outputs(x[None], x[None])

    moon, down = Moon(mu=3.0), Down(torch.tensor([0.0, 1.0], dtype=torch.float64))
    y = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    penalty = moon.penalty(y, look(y), None, look, down, moon.memory(down))
    assert penalty.tolist() == close(3 * log(2))
    assert torch.autograd.grad(penalty.sum(), y)[0].tolist() == close(0, 0)


@kinds
def test_moon_remembers_its_last_model(kind):
    """In one dimension all cosines are +-1, so the contrast has no gradient: MOON walks as FedAvg does."""
    game = Parabolas(Moon(mu=1.0), [1, 4], sizes=[1, 3], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(2.375)
    game.round([0], [1])  # from 2.375 to 1.6875
    rows = game.engine.memory._table.mine.x[:, 0]
    assert rows.tolist() == close(1.6875, 3)  # client 1 still remembers where it ended
