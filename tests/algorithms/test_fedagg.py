"""FedAgg, FedBABU and FedGH: by hand, in whole runs, and what they refuse."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
import torch

from fedtide.algorithms.base import Context
from fedtide.algorithms.fedagg import FedAgg, Request, per_rate
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedbabu import FedBABU
from fedtide.algorithms.fedgh import FedGH, Prototypes, Upload
from fedtide.algorithms.parts.halves import Halves
from fedtide.algorithms.parts.readings import EarlierTerms, Pretrain
from fedtide.core.errors import ConfigError
from fedtide.core.layout import Layout
from fedtide.core.types import Cohort, Nothing, Walk
from fedtide.data.batches import Batching
from fedtide.data.groupings import PARTITIONS
from fedtide.data.source import Data
from fedtide.models.dense import Linear, Mlp
from fedtide.population.participation import PARTICIPATION
from fedtide.population.sessions import Alternating, Fixed
from fedtide.run.experiment import Evaluation, Experiment
from fedtide.run.loop import run
from fedtide.starts.cold import Cold
from fedtide.training.train import Train
from tests.algorithms.quadratic import Parabolas

kinds = pytest.mark.parametrize("kind", ["loop", "vectorised"])


def close(*values):
    return pytest.approx(list(values), abs=1e-12)


def parabolas(algorithm, targets, kind, epochs):
    """Clients with one example each and one step per epoch; see quadratic.py."""
    game = Parabolas(algorithm, targets, kind=kind)
    batching = Batching(batch_size=1, epochs=epochs)
    object.__setattr__(game.engine.data, "batching", batching)
    return game


@kinds
def test_one_epoch_by_hand(kind):
    """alpha = 1/2 (c = 1), a = 1 and 4, all start at 0.

    Round 1, base rate 1/2: y = 0.5 and 2; phi1 = (-1 - 4) / 2 = -2.5, d_1 = 1.25, x = 1.25.
    Round 2: eta = phi1 (w - phi2_1) / (1 + phi1^2) = 2.5 * 1.25 / 7.25 = 12.5 / 29 for both;
             x = 1.25 - eta (1.25 - 2.5) = 1.25 (1 + 12.5 / 29)
    """
    game = parabolas(FedAgg(alpha=0.5), [1, 4], kind, epochs=1)
    done = game.round([0, 1], [1, 1])
    assert done.up.eta.flatten().tolist() == close(0.5, 0.5)
    assert game.server.x.tolist() == close(1.25)
    assert [t.item() for t in game.server.terms] == close(-2.5, 1.25)
    done = game.round([0, 1], [1, 1])
    assert done.up.eta.flatten().tolist() == close(12.5 / 29, 12.5 / 29)
    assert game.server.x.tolist() == close(1.25 * (1 + 12.5 / 29))


@kinds
def test_two_epochs_by_hand(kind):
    """alpha = 1/2 (c = 1), one client with a = 8, then another with a = 4.

    Round 1, base rate 1/2: 0 -> 4 -> 6; phi1 = (-8, -4), d = (4, 6), x = 6.
    Round 2 of the newcomer, u = 0: [1 + 2 * 64, 32; 32, 1 + 16] eta = (-8 * -10, -4 * -6) = (80, 24), so
      eta_0 = (80 * 17 - 32 * 24) / (129 * 17 - 32^2) = 592 / 1169; y = 6 - eta_0 (6 - 4), u = -2 eta_0.
      eta_1 = -4 (u - 6) / 17 = (24 + 8 eta_0) / 17, above the cap of 0.9.
    """
    game = parabolas(FedAgg(alpha=0.5), [8, 4], kind, epochs=2)
    game.round([0], [2])
    assert [t.flatten().tolist() for t in game.server.terms] == [close(-8, -4), close(4, 6)]
    done = game.round([1], [2])
    first = 592 / 1169
    assert (24 + 8 * first) / 17 > 0.9
    assert done.up.eta.flatten().tolist() == close(first, 0.9)
    y = 6 - 2 * first
    assert game.server.x.tolist() == close(y - 0.9 * (y - 4))


@kinds
def test_every_other_round(kind):
    """Terms are asked for in rounds 0 and 2; in between the old ones stay, anchored at the new model."""
    game = parabolas(FedAgg(alpha=0.5, reading=EarlierTerms(every=2)), [1, 4], kind, epochs=1)
    asked, terms, v = [], [], []
    for _ in range(4):
        down = game.algorithm.broadcast(game.server)
        asked.append(isinstance(down.ask, Request))
        v.append(None if isinstance(down.law, Nothing) else down.law.v.item())
        up = game.round([0, 1], [1, 1]).up
        terms.append(not isinstance(up.d, Nothing))
    assert asked == terms == [True, False, True, False]
    assert v[0] is None
    assert v[1] == v[2] != v[3]


@kinds
def test_pretraining_lets_the_model_rest(kind):
    """Three rounds of pretraining, then one that trains; without new terms it keeps those it has."""
    reading = Pretrain(iterations=3, tolerance=0)
    game = parabolas(FedAgg(alpha=0.5, reading=reading), [1, 4], kind, epochs=1)
    path = [(game.round([0, 1], [1, 1]), game.server.x.item())[1] for _ in range(8)]
    assert path[:3] == [0, 0, 0]
    assert 0 < path[3] == path[4] == path[6] < path[7]


def test_the_literal_fixed_point_is_a_rate_of_zero():
    """Equal clients: eta -> c phi1^2 eta / (1 + c phi1^2) shrinks for ever, until the floor stops it."""
    reading = Pretrain(iterations=200, tolerance=0)
    algorithm = FedAgg(alpha=0.5, floor=1e-6, reach=0, reading=reading)
    game = parabolas(algorithm, [1, 1], "loop", epochs=1)
    used = [game.round([0, 1], [1, 1]).up.eta[0].item() for _ in range(60)]
    assert used[:3] == close(0.5, 0.25, 0.125)
    assert used[-1] == pytest.approx(1e-6)


def test_terms_that_stand_still_end_the_pretraining():
    """eta halves in every round (above), d with it: 0.5, 0.25, 0.125; the second change is below 0.2."""
    reading = Pretrain(iterations=50, tolerance=0.2)
    game = parabolas(FedAgg(alpha=0.5, reading=reading), [1, 1], "loop", epochs=1)
    x = [(game.round([0, 1], [1, 1]), game.server.x.item())[1] for _ in range(4)]
    assert x[1] == 0 < x[2]  # phi1 is the same from the start, so one comparison is enough


def test_damping():
    """d = 0.5, then a new 0.25 of which half counts: 0.375."""
    reading = Pretrain(iterations=9, tolerance=0, damping=0.5)
    game = parabolas(FedAgg(alpha=0.5, reading=reading), [1, 1], "loop", epochs=1)
    game.round([0, 1], [1, 1])
    game.round([0, 1], [1, 1])
    assert game.server.terms.d.item() == pytest.approx(0.375, abs=1e-12)


def test_a_layer_of_one_number_is_its_own_sum():
    full, layers = (
        parabolas(FedAgg(alpha=0.5, terms=terms), [1, 4, 2], "loop", epochs=2)
        for terms in ("full", "layers")
    )
    for _ in range(3):
        assert torch.equal(*(g.round([0, 1, 2], [2, 2, 2]).up.eta for g in (full, layers)))


# Whole runs


def experiment(algorithm=None, **changes):
    base = Experiment(
        data=Data(name="digits", partition=PARTITIONS["dirichlet-hetero"](alpha=0.5)),
        population=Fixed(clients=10, rounds=6),
        participation=PARTICIPATION["uniform"](clients=4),
        algorithm=algorithm or FedAgg(),
        train=Train(model=Linear(), lr=0.05, batch_size=32, epochs=3),
        evaluation=Evaluation(probes=("rates", "drift")),
        seed=1,
    )
    return replace(base, **changes)


def test_rates_stay_within_their_bounds():
    algorithm = FedAgg(alpha=0.7, floor=0.02, cap=0.3, epoch="step", reach=0)
    lines = run(experiment(algorithm)).rounds
    used = np.array([line["rates"] for line in lines])
    assert used.shape == (6, 4, 3)
    assert used.min() >= np.float32(0.02)
    assert used.max() <= np.float32(0.3)
    assert len(np.unique(used)) > 10  # and they are not all on the bounds
    for line, rates in zip(lines, used, strict=True):
        assert line["at_floor"] == pytest.approx((rates <= 0.02001).mean())
        assert line["at_cap"] == pytest.approx((rates >= 0.29999).mean())


def test_rates_stay_within_reach_of_the_studys_own():
    """The rate of the study is 0.05; a factor of 2 is the default."""
    lines = run(experiment(FedAgg())).rounds
    used = np.array([line["rates"] for line in lines])
    assert used.min() >= 0.025 * (1 - 1e-6)
    assert used.max() <= 0.1 * (1 + 1e-6)
    assert max(line["at_floor"] for line in lines) > 0 < max(line["at_cap"] for line in lines)
    assert FedAgg().limits(0.05) == (0.025, 0.1)
    assert FedAgg().limits(0.8) == (0.4, 0.9)  # and Proposition 3
    assert FedAgg(reach=0).limits(0.05) == (0.001, 0.9)


def test_rates_of_an_algorithm_without_its_own():
    line = run(experiment(FedAvg())).rounds[0]
    assert "at_cap" not in line  # nothing bounds its rate
    assert line["rates"] == [[pytest.approx(0.05)]] * 4
    assert len(line["drift"]) == 4
    assert min(line["drift"]) > 0


def test_drift_is_bounded():
    """Proposition 4 on the convex model, one step per epoch: ||w_l - w|| <= l P delta_h."""
    seen = []

    class Watched(FedAgg):
        def aggregate(self, server, up, cohort):
            seen.append(up)
            return super().aggregate(server, up, cohort)

    train = Train(model=Linear(), lr=0.05, batch_size=2000, epochs=3)
    run(experiment(Watched(epoch="step", reach=0), train=train))
    assert len(seen) == 6
    for up in seen:
        bound = up.phi1.norm(dim=2).max() * up.eta.max()  # P delta_h
        drift = up.d.norm(dim=2)  # [U, l]
        assert (drift <= bound * torch.arange(1, 4) * (1 + 1e-5)).all()
        assert drift.max() > 0.1 * bound  # the bound is not empty


def test_a_new_session_drops_the_terms():
    """Its first round uses the study's rate again, as the first round of all does."""
    population = Alternating(clients=5, sessions=3, rounds=3)
    e = experiment(population=population)
    lines = run(replace(e, train=replace(e.train, memories="reset"))).rounds
    for line in lines:
        base = np.allclose(line["rates"], 0.05)
        assert base == (line["round_in_session"] == 0)


def test_terms_may_outlive_a_start():
    """A start that installs another model drops the terms, or keeps them."""
    population = Alternating(clients=5, sessions=3, rounds=3)
    for keep in (False, True):
        e = experiment(FedAgg(keep_terms=keep), population=population, start=Cold())
        for line in run(e).rounds:
            base = np.allclose(line["rates"], 0.05)
            assert base == (line["t"] == 0 if keep else line["round_in_session"] == 0)


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_control_predicts_what_the_batches_of_an_epoch_move(epochs):
    """w - the sum of eta phi1 is where a client ends, epoch by epoch, however many its batches."""
    seen = []

    class Watched(FedAgg):
        def aggregate(self, server, up, cohort):
            after = super().aggregate(server, up, cohort)
            seen.append((up, after.terms))
            return after

    train = Train(model=Mlp(hidden=(8,)), lr=0.05, batch_size=16, epochs=epochs)
    run(experiment(Watched(), train=train))
    for up, terms in seen:
        phi1 = per_rate(up.d, up.eta)
        moved = -(up.eta[..., None] * phi1).cumsum(1)
        assert torch.allclose(moved, up.d, atol=1e-6)
        assert torch.allclose(moved[:, -1], up.delta, atol=1e-6)
        assert torch.equal(terms.phi1, phi1.mean(0))


def test_the_default_does_not_wreck_a_network():
    """A rate that suits the network: the paper's one step per epoch raises it to the cap of 0.9."""
    train = Train(model=Mlp(hidden=(16,)), lr=0.1, batch_size=2, epochs=3)
    found = {}
    for name, algorithm in (
        ("fedavg", FedAvg()),
        ("default", FedAgg()),
        ("step", FedAgg(epoch="step", reach=0)),
    ):
        lines = run(experiment(algorithm, train=train)).rounds
        found[name] = lines[-1]["accuracy"]
    assert found["default"] > found["fedavg"] - 0.02
    assert found["step"] < found["fedavg"] - 0.2


@pytest.mark.parametrize(("epoch", "vectors"), [("batches", 3), ("step", 6)])
def test_what_travels_is_counted(epoch, vectors):
    """Floats: x down, then 3 vectors and 3 numbers more; x and 3 rates up, and terms as vectors.

    Displacements and rates tell what a rate moves; gradients have to be sent.
    """
    dim, u = 64 * 10 + 10, 4
    lines = run(experiment(FedAgg(epoch=epoch, reading=EarlierTerms(every=2)))).rounds
    law = 4 * (3 * dim + 3)
    assert [line["bytes_down"] // u for line in lines] == [4 * dim] + 5 * [4 * dim + law]
    with_terms, without = 4 * (dim + 3 + vectors * dim), 4 * (dim + 3)
    assert [line["bytes_up"] // u for line in lines] == 3 * [with_terms, without]
    layers = run(experiment(FedAgg(epoch=epoch, terms="layers"))).rounds
    assert layers[-1]["bytes_up"] // u == 4 * (dim + 3 + vectors * 2)
    assert layers[-1]["bytes_down"] // u == 4 * (dim + 3 * 2 + 3)


def test_halves_travel_without_what_stays():
    mlp = Train(model=Mlp(hidden=(16,)), lr=0.1, batch_size=32, epochs=1)
    body, head = 64 * 16 + 16, 16 * 10 + 10
    babu = run(experiment(FedBABU(), train=mlp)).rounds[0]
    assert babu["bytes_down"] == 4 * 4 * (body + head)
    assert babu["bytes_up"] == 4 * 4 * body
    gh = run(experiment(FedGH(), train=mlp)).rounds[0]
    assert gh["bytes_up"] == 4 * 4 * (body + 10 * 16 + 10)


@pytest.mark.parametrize("algorithm", [FedBABU(), FedGH(), FedAgg(cap=0.3)])
def test_they_learn(algorithm):
    train = Train(model=Mlp(hidden=(32,)), lr=0.1, batch_size=16, epochs=3)
    lines = run(experiment(algorithm, train=train, population=Fixed(clients=10, rounds=15))).rounds
    assert lines[-1]["accuracy"] > 0.6


def test_the_head_of_fedbabu_never_moves():
    train = Train(model=Mlp(hidden=(16,)), lr=0.1, batch_size=32, epochs=1)
    e = experiment(FedBABU(), train=train)
    history = run(e)
    first = run(replace(e, population=Fixed(clients=10, rounds=1)))
    head = 16 * 10 + 10
    assert torch.equal(history.model.x[-head:], first.model.x[-head:])
    assert not torch.equal(history.model.x[:-head], first.model.x[:-head])


def test_the_server_of_fedgh_by_hand():
    """Two labels, one feature, head at 0, one step of rate 1.

    Client 0 holds both labels with prototypes 2 and 4, client 1 only label 1 with 6: three prototypes.
    Every softmax is (1/2, 1/2), so errors are (-1/2, 1/2), (1/2, -1/2), (1/2, -1/2), each / 3.
    weight_0 = -(-1 + 2 + 3) / 3 = -4/3, bias_0 = -(-1/2 + 1/2 + 1/2) / 3 = -1/6; label 1 the opposite.
    """
    server = Halves(torch.tensor([1.0]), torch.zeros(4))
    mean = torch.tensor([[[2.0], [4.0]], [[99.0], [6.0]]])
    held = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    up = Upload(torch.tensor([[1.0], [3.0]]), Prototypes(mean, held))
    walk = Walk(*torch.ones(4, 2))
    cohort = Cohort(torch.arange(2), torch.tensor([0.75, 0.25]), walk, 2, 0)
    after = FedGH(head_lr=1.0, head_steps=1).aggregate(server, up, cohort)
    assert after.body.tolist() == pytest.approx([1 + 0.75 + 0.75])
    assert after.head.tolist() == pytest.approx([-4 / 3, 4 / 3, -1 / 6, 1 / 6])
    again = FedGH(head_lr=1.0, head_steps=2).aggregate(server, up, cohort)
    p = 1 / (1 + exp(-2 * (4 / 3 * 2 - 1 / 6)))  # what label 0's prototype now gives to label 1
    assert again.head[0].item() != pytest.approx(after.head[0].item())
    assert p > 0.99


# What they refuse

WRONG = [
    (FedAgg, {"alpha": 0}, "algorithm.alpha must be in (0, 1). Got 0."),
    (FedAgg, {"alpha": 1.0}, "algorithm.alpha must be in (0, 1). Got 1.0."),
    (FedAgg, {"alpha": float("nan")}, "algorithm.alpha must be in (0, 1). Got nan."),
    (FedAgg, {"floor": 0}, "algorithm.floor must be in (0, 1). Got 0."),
    (FedAgg, {"cap": 1}, "algorithm.cap must be above floor = 0.001 and below 1. Got 1."),
    (
        FedAgg,
        {"floor": 0.2, "cap": 0.2},
        "algorithm.cap must be above floor = 0.2 and below 1. Got 0.2.",
    ),
    (
        FedAgg,
        {"reach": 0.5},
        "algorithm.reach must be at least 1, or 0 for no such bound. Got 0.5.",
    ),
    (EarlierTerms, {"every": 0}, "algorithm.reading.every must be at least 1. Got 0."),
    (Pretrain, {"iterations": 0}, "algorithm.reading.iterations must be at least 1. Got 0."),
    (Pretrain, {"tolerance": -1}, "algorithm.reading.tolerance must be zero or positive. Got -1."),
    (Pretrain, {"damping": 1}, "algorithm.reading.damping must be in [0, 1). Got 1."),
    (FedGH, {"head_lr": 0}, "algorithm.head_lr must be positive. Got 0."),
    (FedGH, {"head_steps": 0}, "algorithm.head_steps must be at least 1. Got 0."),
]


@pytest.mark.parametrize(("kind", "settings", "message"), WRONG)
def test_wrong_settings(kind, settings, message):
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert str(caught.value) == message


def test_fedagg_needs_epochs():
    with pytest.raises(
        ConfigError, match=r"train\.epochs must be at least 1 with FedAgg.*Set train\.epochs"
    ):
        experiment(train=Train(steps=5))
    assert experiment(FedGH(), train=Train(steps=5))  # looks at the end of a round only


@pytest.mark.parametrize("algorithm", [FedBABU(), FedGH()])
def test_a_model_without_halves(algorithm):
    with pytest.raises(ConfigError, match=r"train\.model.*head.*Choose another model"):
        run(experiment(algorithm))


def test_a_head_before_its_body():
    layout = Layout(("head.weight", "embed.weight"), (torch.Size([2]), torch.Size([3])))
    with pytest.raises(ConfigError, match="a body and, after it, a part called 'head' for FedBABU"):
        FedBABU().init(torch.zeros(5), Context(layout, 1))
