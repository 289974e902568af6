"""Losses of models, tested by clients: the same bits on every engine, equal to a plain computation."""

from contextlib import closing

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.types import Model
from tests.conformance.arena import RULES, World, drive

MIXES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.25, 0.75]])


def models_of(engine, seed=1):
    """The untrained model, and one with other numbers and buffers."""
    numbers = torch.Generator().manual_seed(seed)
    first = engine.task.initial
    noise = torch.randn(first.x.shape, generator=numbers, dtype=first.x.dtype)
    buffers = {name: b + 1 if b.is_floating_point() else b for name, b in first.buffers.items()}
    return [first, Model(first.x + 0.3 * noise, buffers)]


def losses_of(kind, model, ids=(5, 1, 3), **settings):
    engine = World(model, **settings).engine(kind)
    with closing(engine):
        return engine.losses(models_of(engine), MIXES, np.array(ids, dtype=np.int64), t=2)


@pytest.mark.portable
@pytest.mark.parametrize(
    ("kind", "model"),
    [("vectorised", "mlp"), ("vectorised", "conv"), ("vectorised", "chain"), ("compiled", "chain")],
)
def test_every_engine_computes_the_same_bits(kind, model):
    one, other = losses_of(kind, model), losses_of("loop", model)
    for mine, same in zip(one, other, strict=True):
        assert np.array_equal(mine, same)


def test_losses_are_means_over_all_that_a_client_holds():
    engine = World("chain", dtype=torch.float64).engine("loop")
    with closing(engine):
        models = models_of(engine)
        found = engine.losses(models, MIXES, np.array([5, 1, 3]), t=2)
        assert found.ids.tolist() == [1, 3, 5]
        for u, client in enumerate(found.ids):
            places = torch.from_numpy(engine.data.holdings.held(2, np.array([client])))
            inputs, targets = engine.data.examples.take(places)
            assert found.weight[u] == len(places)
            for m, (a, b) in enumerate(MIXES.tolist()):
                x = a * models[0].x + b * models[1].x
                logits = engine.task.view(x, models[0].buffers, inputs).logits
                np.testing.assert_allclose(
                    found.losses[m, u], cross_entropy(logits, targets), rtol=1e-12
                )


def test_clients_without_examples_are_left_out():
    found = losses_of("loop", "mlp", sizes=(3, 0, 4), ids=(0, 1, 2))
    assert found.ids.tolist() == [0, 2]
    assert found.losses.shape == (4, 2)


def test_without_clients():
    found = losses_of("loop", "mlp", ids=())
    assert (found.ids.shape, found.losses.shape, found.weight.shape) == ((0,), (4, 0), (0,))


def test_a_client_larger_than_a_block():
    """The mean over 2,500 examples, in three blocks."""
    engine = World("mlp", sizes=(2500,), dtype=torch.float64).engine("loop")
    with closing(engine):
        first, _ = models_of(engine)
        found = engine.losses([first], torch.ones(1, 1), np.array([0]), t=0)
        inputs, targets = engine.data.examples.between(0, 2500)
        logits = engine.task.view(first.x, first.buffers, inputs).logits
        np.testing.assert_allclose(found.losses[0, 0], cross_entropy(logits, targets), rtol=1e-12)


def test_local_buffers_are_the_clients_own():
    """After two rounds clients 0 and 1 have BatchNorm statistics of their own; client 2 has none yet."""
    world = World("mlp", policy="local")
    engine = world.engine("loop")
    with closing(engine):
        drive_open(engine)
        first = engine.task.initial
        found = engine.losses([first], torch.ones(1, 1), np.arange(3), t=2)
        kept = engine.memory.kept(np.array([0, 1]))[1].buffers
        for client in range(3):
            own = first.buffers if client == 2 else {n: b[client] for n, b in kept.items()}
            places = torch.from_numpy(engine.data.holdings.held(2, np.array([client])))
            inputs, targets = engine.data.examples.take(places)
            logits = engine.task.view(first.x, own, inputs).logits
            np.testing.assert_allclose(
                found.losses[0, client], cross_entropy(logits, targets), rtol=1e-5
            )


def drive_open(engine):
    """Two rounds of clients 0 and 1; the engine stays open."""
    close, engine.close = engine.close, lambda: None
    drive(engine, FedAvg(), RULES["sgd"], ((0, 1), (0, 1)))
    engine.close = close
