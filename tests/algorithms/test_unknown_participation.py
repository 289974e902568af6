"""Algorithms for unknown participation on parabolas, by hand; see quadratic.py for the setting.

Client i pulls towards a_i; with the learning rate 1/2 a step goes half of the way. Sizes never count.
"""

import numpy as np
import pytest
import torch

from fedtide.algorithms.afa import AfaCD, AfaCS
from fedtide.algorithms.base import Context
from fedtide.algorithms.fedamplify import FedAmplify
from fedtide.algorithms.fedau import FedAU, Memory
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fednova import FedNova
from fedtide.algorithms.fedvarp import FedVarp
from fedtide.algorithms.mifa import Mifa
from fedtide.core.errors import ConfigError
from fedtide.core.types import Walk
from tests.algorithms.quadratic import Parabolas

kinds = pytest.mark.parametrize("kind", ["loop", "vectorised"])


def close(*values):
    return pytest.approx(list(values), abs=1e-12)


@kinds
def test_fedavg_with_equal_weights(kind):
    """a = 1, 4; y = 0.5 and 3: x = 1.75, however many examples they have."""
    game = Parabolas(FedAvg(weights="equal"), [1, 4], sizes=[1, 3], kind=kind)
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(1.75)


def test_fednova_with_equal_weights():
    """||a|| = 1, 2: tau_eff = 1.5, x = 1.5 * (0.5 / 1 + 3 / 2) / 2 = 1.5."""
    game = Parabolas(FedNova(weights="equal"), [1, 4], sizes=[1, 3])
    game.round([0, 1], [1, 2])
    assert game.server.x.tolist() == close(1.5)


@kinds
def test_mifa(kind):
    """a = 1, 4, 2, 0; N = 4, the last never seen; lr = 1/2.

    Round 1, clients 0 (K = 1) and 1 (K = 2): y = 0.5, 3; G = -1, -6
      g = (-1 - 6) / 4 = -1.75, x = 0 + 1.75 / 2 = 0.875
    Round 2, clients 1 and 2, K = 1: y_1 = (0.875 + 4) / 2 = 2.4375, G_1 = -3.125;
      y_2 = 1.4375, G_2 = -1.125; G_0 stays -1
      g = (-1 - 3.125 - 1.125) / 4 = -1.3125, x = 0.875 + 0.65625 = 1.53125
    """
    game = Parabolas(Mifa(), [1, 4, 2, 0], sizes=[1, 3, 2, 1], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.dg[:, 0].tolist() == close(-1, -6)
    assert [*game.server.x.tolist(), *game.server.g.tolist()] == close(0.875, -1.75)
    done = game.round([1, 2], [1, 1])
    assert done.up.dg[:, 0].tolist() == close(2.875, -1.125)
    assert [*game.server.x.tolist(), *game.server.g.tolist()] == close(1.53125, -1.3125)
    assert game.server.seen.item() == 3


@kinds
def test_mifa_that_waits(kind):
    """a = 1, 4: x rests until both are seen. G_0 = -1, then G_1 = -4, g = -2.5, x = 1.25."""
    game = Parabolas(Mifa(wait=True), [1, 4], kind=kind)
    game.round([0], [1])
    assert game.server.x.tolist() == close(0)
    game.round([0], [1])
    assert game.server.seen.item() == 1
    game.round([1], [1])
    assert game.server.x.tolist() == close(1.25)


def test_mifa_follows_a_schedule():
    """G is free of the learning rate: a row from a round at 1/2 counts with 1/4 in a round at 1/4.

    a = 1, 1; round 1 at 1/2, client 0: G_0 = -1, g = -0.5, x = 0.25.
    Round 2 at 1/4, client 1: y = 0.25 + 0.75 / 4 = 0.4375, G_1 = -0.75, g = -0.875, x = 0.25 + 0.21875.
    """
    game = Parabolas(Mifa(), [1, 1])
    game.round([0], [1])
    game.lr = 0.25
    game.round([1], [1])
    assert game.server.x.tolist() == close(0.46875)


@kinds
def test_fedvarp(kind):
    """a = 1, 4, 2, 0; N = 4; eta_g = 2.

    Round 1, clients 0 (K = 1) and 1 (K = 2): Delta = 0.5, 3; all y_i = 0
      x = 2 * 1.75 = 3.5; mean of y = 3.5 / 4 = 0.875
    Round 2, clients 1 and 2, K = 1: Delta_1 = 0.25, Delta_2 = -0.75
      v = ((0.25 - 3) + (-0.75 - 0)) / 2 + 0.875 = -0.875, x = 3.5 - 1.75 = 1.75
      mean of y = (0.5 + 0.25 - 0.75) / 4 = 0
    """
    game = Parabolas(FedVarp(server_lr=2.0), [1, 4, 2, 0], sizes=[1, 3, 2, 1], kind=kind)
    game.round([0, 1], [1, 2])
    assert [*game.server.x.tolist(), *game.server.y.tolist()] == close(3.5, 0.875)
    done = game.round([1, 2], [1, 1])
    assert done.up.dy[:, 0].tolist() == close(-2.75, -0.75)
    assert [*game.server.x.tolist(), *game.server.y.tolist()] == close(1.75, 0)


def test_fedvarp_with_everybody_is_the_mean():
    """Full participation: the table cancels, v is the mean update."""
    varp, plain = Parabolas(FedVarp(), [1, 4]), Parabolas(FedAvg(), [1, 4])
    for _ in range(3):
        varp.round([0, 1], [1, 2])
        plain.round([0, 1], [1, 2])
        assert varp.server.x.tolist() == close(*plain.server.x.tolist())


@kinds
def test_fedau(kind):
    """a = 8, 8, eta_g = 1, N = 2, K = 50. Client 0 comes in rounds 0, 1, 4 and 6; client 1 in 2 and 3, 5.

    Client 0's intervals: 1 (round 0), 1, 3, 2. Weights before each is appended: 1, 1, 1, 5/3.
    Client 1's intervals: 3 (round 2), 1, 2. Weights: 1, 3, (3 + 1) / 2 = 2.
    x: 0 -> 0 + 4/2 = 2 -> 2 + 3/2 = 3.5 -> 3.5 + 2.25/2 = 4.625 -> + 3 * 1.6875/2 = 7.15625
       -> + 0.421875/2 -> ...
    """
    game, weights, x = Parabolas(FedAU(), [8, 8], kind=kind), [], []
    for client in (0, 0, 1, 1, 0, 1, 0):
        weights += game.round([client], [1]).up.omega.tolist()
        x += game.server.x.tolist()
    assert weights == close(1, 1, 1, 3, 1, 2, 5 / 3)
    assert x[:5] == close(2, 3.5, 4.625, 7.15625, 7.3671875)


def intervals(algorithm, rounds):
    """The authors' bookkeeping, round by round: a counter, a list, a cut at K."""
    absent, known, weights = 0, [], []
    for present in rounds:
        absent += 1
        if present:
            weights.append(np.mean(known) if known else 1.0)
        if present or absent == algorithm.cutoff:
            known.append(absent)
            absent = 0
    return weights


def there_since_round_0(t):
    return Walk(*torch.tensor([1.0, 1.0, 1.0, t], dtype=torch.float64))


@pytest.mark.parametrize("cutoff", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("seed", range(4))
def test_fedau_counts_like_the_authors(cutoff, seed):
    """In closed form at each participation what their loop counts in every round."""
    algorithm, x = FedAU(cutoff=cutoff), torch.zeros(1, dtype=torch.float64)
    server = algorithm.init(x, Context(None, 2))
    rounds = np.random.default_rng(seed).random(60) < 0.15
    mine, weights = algorithm.memory(server), []
    for t, present in enumerate(rounds):
        if present:
            down = server._replace(t=torch.tensor(float(t), dtype=torch.float64))
            up, mine = algorithm.report(x, there_since_round_0(t), down, mine)
            weights.append(up.omega.item())
    assert len(weights) > 3
    assert weights == pytest.approx(intervals(algorithm, rounds))


def test_fedau_memories_that_outlive_a_session():
    """A new session's rounds begin at 0, before the last participation: the interval is 1."""
    algorithm = FedAU()
    old = Memory(torch.tensor(30.0), torch.tensor(2.0), torch.tensor(8.0))
    server, walk = algorithm.init(torch.zeros(1), None), there_since_round_0(40)
    up, new = algorithm.report(torch.ones(1), walk, server, old)
    assert (up.omega.item(), new.made.item(), new.total.item()) == (4, 3, 9)


@kinds
def test_fedamplify(kind):
    """One client, a = 8, P = 2, eta = 3.

    Rounds 1, 2: 0 -> 4 -> 6, amplified: 6 + 2 * (6 - 0) = 18, which is the new anchor.
    Rounds 3, 4: 18 -> 13 -> 10.5, amplified: 10.5 + 2 * (10.5 - 18) = -4.5
    """
    game, x = Parabolas(FedAmplify(period=2, server_lr=3.0), [8], kind=kind), []
    for _ in range(4):
        game.round([0], [1])
        x += game.server.x.tolist()
    assert x == close(4, 18, 13, -4.5)


def test_fedamplify_weights():
    """a = 1, 4 with 1 and 3 examples: 2.375 by share, 1.75 equally."""
    for weights, x in (("examples", 2.375), ("equal", 1.75)):
        game = Parabolas(FedAmplify(weights=weights), [1, 4], sizes=[1, 3])
        game.round([0, 1], [1, 2])
        assert game.server.x.tolist() == close(x)


@kinds
def test_afa_cd(kind):
    """a = 1, 4, eta = 0.1: G_0 = -0.5 / (1 / 2) = -1; G_1 = -3 / (2 / 2) = -3, the mean of -4 and -2.

    x = 0 + 0.1 * 2 = 0.2; then client 1 alone, K = 1: G = -3.8, x = 0.58
    """
    game = Parabolas(AfaCD(server_lr=0.1), [1, 4], sizes=[1, 3], kind=kind)
    done = game.round([0, 1], [1, 2])
    assert done.up.g[:, 0].tolist() == close(-1, -3)
    assert game.server.x.tolist() == close(0.2)
    game.round([1], [1])
    assert game.server.x.tolist() == close(0.58)


@kinds
def test_afa_cs(kind):
    """a = 1, 4, 0; N = 3, the last never seen; eta = 0.3.

    Round 1: G = -1, -3; g = -4/3, x = 0.4
    Round 2, client 1, K = 1: G_1 = 0.4 - 4 = -3.6, g = (-1 - 3.6) / 3, x = 0.4 + 0.46
    """
    game = Parabolas(AfaCS(server_lr=0.3), [1, 4, 0], kind=kind)
    game.round([0, 1], [1, 2])
    assert [*game.server.x.tolist(), *game.server.g.tolist()] == close(0.4, -4 / 3)
    done = game.round([1], [1])
    assert done.up.g[:, 0].tolist() == close(-0.6)
    assert game.server.x.tolist() == close(0.86)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (FedVarp, {"server_lr": 0}, "algorithm.server_lr must be positive. Got 0."),
        (FedAU, {"cutoff": 0}, "algorithm.cutoff must be at least 1. Got 0."),
        (FedAU, {"server_lr": -1}, "algorithm.server_lr must be positive. Got -1."),
        (FedAmplify, {"period": 0}, "algorithm.period must be at least 1. Got 0."),
        (FedAmplify, {"server_lr": 0}, "algorithm.server_lr must be positive. Got 0."),
        (AfaCD, {"server_lr": 0}, "algorithm.server_lr must be positive. Got 0."),
        (AfaCS, {"server_lr": 0}, "algorithm.server_lr must be positive. Got 0."),
    ],
)
def test_wrong_settings(kind, wrong, message):
    with pytest.raises(ConfigError) as caught:
        kind(**wrong)
    assert str(caught.value) == message
