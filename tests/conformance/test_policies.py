"""Buffers, dropout and whole runs: what both engines must do with them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.types import Dataset, Examples
from fedtide.data.groupings import PARTITIONS
from fedtide.data.source import Data
from fedtide.models.base import EmbedHead
from fedtide.models.dense import Mlp
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Alternating, Fixed
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run
from fedtide.starts import ArchiveAverage
from fedtide.training.optimisers import Sgd
from fedtide.training.train import Train
from tests.conformance.arena import (
    CLASSES,
    COHORTS,
    ROUNDING,
    RULES,
    SIZES,
    World,
    assert_same,
    drive,
    outcome,
)
from tests.conformance.table import TABLE
from tests.worlds import settings_of

KINDS = ["loop", "vectorised"]
COUNTER, MEAN = "embed.2.num_batches_tracked", "embed.2.running_mean"
STEPS = {client: -(-size // 4) for client, size in enumerate(SIZES)}
kinds = pytest.mark.parametrize("kind", KINDS)


def share(members):
    sizes = np.array(SIZES)[list(members)]
    return sizes / sizes.sum()


# Buffers


@kinds
def test_average_mixes_by_share_and_everybody_starts_from_the_mean(kind):
    done = outcome("fedavg", FedAvg(), "sgd", kind)
    counter = 0
    for members, clients in zip(COHORTS, done.clients, strict=True):
        assert {c: int(clients[c][COUNTER]) for c in members} == {
            c: counter + STEPS[c] for c in members
        }
        counter = round(sum(share(members) * [counter + STEPS[c] for c in members]))
    assert int(done.buffers[COUNTER]) == counter
    mean = sum(w * clients[c][MEAN].double() for w, c in zip(share(members), members, strict=True))
    torch.testing.assert_close(done.buffers[MEAN], mean.float())
    assert done.memories == {}


def test_frozen_buffers_are_downloaded_once():
    """By each client, before its first round; trained ones travel in every round."""
    model = EmbedHead(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64)), nn.Linear(64, 10))
    e = Experiment(population=Fixed(clients=6, rounds=8), participation=Uniform(clients=3), seed=1)
    train = Train(model=model, lr=0.1, batch_size=16, steps=1)
    frozen, average, local = (
        run(replace(e, train=replace(train, buffers=policy))).rounds
        for policy in ("frozen", "average", "local")
    )
    buffers, met = 4 * 2 * 64 + 8, set()  # two vectors and a counter
    for line, plain, moving in zip(frozen, local, average, strict=True):
        new = set(line["clients"]) - met
        met |= new
        assert line["bytes_down"] == plain["bytes_down"] + buffers * len(new)
        assert moving["bytes_down"] == plain["bytes_down"] + buffers * 3
    assert len(met) == 6


@kinds
def test_local_buffers_return_to_their_client(kind):
    done = drive(World(policy="local").engine(kind), FedAvg(), RULES["sgd"])
    first, second, third = done.clients
    assert int(third[2][COUNTER]) == 3 * STEPS[2]  # it took part three times
    assert int(third[0][COUNTER]) == 2 * STEPS[0]  # it came back after a round away
    # A newcomer starts from the global buffers, which are the mean of the first cohort's ...
    mean = round(sum(share(COHORTS[0]) * [int(first[c][COUNTER]) for c in COHORTS[0]]))
    assert int(second[1][COUNTER]) == mean + STEPS[1]
    assert sorted(done.memories) == sorted(set().union(*COHORTS))
    for client in done.memories:  # ... and what a client keeps is what it had at the end
        last = max(t for t, members in enumerate(COHORTS) if client in members)
        for name, buffer in done.memories[client].buffers.items():
            assert torch.equal(buffer, done.clients[last][client][name])


@kinds
def test_frozen_buffers_never_move(kind):
    world = World(policy="frozen")
    done = drive(world.engine(kind), FedAvg(), RULES["sgd"])
    for name, buffer in world.task().initial.buffers.items():
        assert torch.equal(done.buffers[name], buffer)
    assert int(done.clients[-1][2][COUNTER]) == STEPS[2]
    # Batches are normalised by their own statistics, so the model itself does not notice.
    assert torch.equal(done.server.x, outcome("fedavg", FedAvg(), "sgd", kind).server.x)


@pytest.mark.portable
@pytest.mark.parametrize("policy", ["local", "frozen"])
@pytest.mark.parametrize("name", ["scaffold", "moon"])
def test_engines_agree_under_every_policy(policy, name):
    world = World(policy=policy, dtype=torch.float64)
    loop, vectorised = (
        drive(world.engine(kind), TABLE[name].algorithm, RULES["carried"]) for kind in KINDS
    )
    assert_same(loop, vectorised, ROUNDING["carried"])


# Dropout


@kinds
@pytest.mark.parametrize("workers", [1, 2])
def test_dropout_has_addresses_too(kind, workers):
    torch.manual_seed(1)
    one = drive(World("dropout").engine(kind), TABLE["moon"].algorithm, RULES["momentum"])
    torch.manual_seed(2)
    before = torch.get_rng_state()
    engine = World("dropout").engine(kind, workers)
    assert engine.traits.is_random
    other = drive(engine, TABLE["moon"].algorithm, RULES["momentum"])
    assert_same(one, other, 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one.server.x, drive_without_dropout(kind).server.x)


def drive_without_dropout(kind):
    return drive(World("plain").engine(kind), TABLE["moon"].algorithm, RULES["momentum"])


def test_dropout_of_a_client_does_not_depend_on_its_cohort():
    """On the loop; the vectorised engine draws for a whole cohort at once."""
    alone = drive(World("dropout").engine("loop"), FedAvg(), Sgd(), [(3,)])
    among = drive(World("dropout").engine("loop"), FedAvg(), Sgd(), [(0, 3, 5)])
    assert torch.equal(alone.training[0][3].loss, among.training[0][3].loss)


def test_clients_drop_different_units():
    """Four clients with the same data: dropout is what tells them apart."""
    for kind in KINDS:
        world = World("dropout", sizes=(4, 4, 4, 4))
        engine = world.engine(kind)
        same = world.examples().inputs[:4].repeat(4, 1, 1, 1)
        object.__setattr__(engine.data, "examples", Examples(same, torch.arange(4).repeat(4) % 3))
        done = drive(engine, FedAvg(), Sgd(), [(0, 1, 2, 3)])
        assert len({float(done.training[0][c].loss) for c in range(4)}) == 4


# Whole runs


def dataset():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 12))
    targets = np.arange(160) % 4
    inputs = torch.from_numpy(centres[targets] + rng.normal(size=(160, 12))).float()
    targets = torch.from_numpy(targets)
    train, test = Examples(inputs[:120], targets[:120]), Examples(inputs[120:], targets[120:])
    return Dataset("blobs", train, test, classes=4)


def experiment(**changes):
    e = Experiment(
        data=Data(name=dataset(), partition=PARTITIONS["dirichlet-hetero"](alpha=1.0)),
        population=Alternating(clients=5, sessions=3, rounds=2),
        participation=Uniform(clients=3),
        algorithm=TABLE["scaffold"].algorithm,
        train=Train(model=Mlp(hidden=(6,)), batch_size=5, epochs=1),
        start=ArchiveAverage(),
        engine=settings_of(kind="loop", workers=1, device="cpu"),
        seed=4,
    )
    return replace(e, **changes)


def facts(history):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in history.rounds]


@kinds
def test_runs_repeat_bit_for_bit_and_leave_the_generators_alone(kind):
    before, numpys = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    engine = settings_of(kind=kind, workers=1, chunk=2, device="cpu")
    one = run(experiment(engine=engine))
    two = run(experiment(engine=replace(engine, workers=2)))
    assert torch.equal(one.model.x, two.model.x)
    assert facts(one) == facts(two)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(a, b) for a, b in zip(numpys, np.random.get_state(), strict=True))  # noqa: NPY002


@pytest.mark.portable
@pytest.mark.parametrize("name", TABLE)
def test_whole_runs_agree(name):
    algorithm = TABLE[name].algorithm
    loop, vectorised = (
        run(experiment(algorithm=algorithm, engine=settings_of(kind=kind, workers=1, device="cpu")))
        for kind in KINDS
    )
    torch.testing.assert_close(loop.model.x, vectorised.model.x, atol=1e-5, rtol=0)
    for a, b in zip(loop.rounds, vectorised.rounds, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], abs=1e-5)


def test_another_seed_is_another_run():
    assert not torch.equal(run(experiment()).model.x, run(experiment(seed=5)).model.x)


@kinds
def test_a_module_of_ones_own_with_dropout_runs(kind):
    net = EmbedHead(
        nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Dropout(0.2)), nn.Linear(6, CLASSES + 1)
    )
    e = experiment(
        train=Train(model=net, batch_size=5, steps=2),
        engine=settings_of(kind=kind, workers=2, device="cpu"),
    )
    assert torch.equal(run(e).model.x, run(e).model.x)
