"""Algorithms that need only a weighted sum of the uploads: the sum may be made anywhere."""

from contextlib import closing

import numpy as np
import pytest
import torch

from fedtide.algorithms.base import Context
from fedtide.algorithms.fedavg import FedAvg, Server, Upload
from fedtide.core.errors import TrainingError
from fedtide.core.mix import weighted
from fedtide.core.trees import leaves, rows, tree_map
from fedtide.core.types import Cohort
from fedtide.engines import compiled
from fedtide.training.optimisers import Sgd
from tests.conformance.arena import LR, RULES, World, assert_same, drive
from tests.conformance.table import TABLE
from tests.worlds import train_cohort

IDS = np.array([0, 2, 3, 5, 7])
WEIGHING = {name: row.algorithm for name, row in TABLE.items() if row.algorithm.weighs}


def test_these_say_that_a_sum_is_enough():
    assert list(WEIGHING) == [
        "fedavg",
        "fedprox",
        "scaffold",
        "moon",
        "fedacg",
        "feddyn",
        "fednova",
        "fedamplify",
        "fedntd",
        "fedlc",
        "label-smoothing",
        "continuous",
    ]


@pytest.mark.parametrize("name", WEIGHING)
def test_a_sum_of_partial_sums_is_enough(name):
    algorithm, engine = WEIGHING[name], World(dtype=torch.float64).engine("loop")
    x, buffers = engine.task.initial
    server = algorithm.init(x, Context(engine.task.layout, 9))
    sizes = engine.data.holdings.sizes(0, IDS)
    with closing(engine):
        down, steps = algorithm.broadcast(server), engine.data.steps(0, IDS)
        result = train_cohort(engine, algorithm, RULES["sgd"], LR, down, buffers, IDS, steps, 0)
    share = torch.from_numpy(sizes / sizes.sum())
    cohort = Cohort(torch.from_numpy(IDS), share, result.walk, 9, 0)
    weights = algorithm.weigh(share, result.walk)
    parts = [
        weighted(rows(result.up, part), weights[part]) for part in (slice(0, 3), slice(3, None))
    ]
    moved = algorithm.move(server, tree_map(torch.add, *parts), cohort)
    for one, other in zip(
        leaves(moved), leaves(algorithm.aggregate(server, result.up, cohort)), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


# What is added up are uploads, after the optimiser's last step: every algorithm with one optimiser, and
# every optimiser with one algorithm that remembers.
SUMMED = [(name, "momentum") for name in WEIGHING]
SUMMED += [("scaffold", rule) for rule in RULES if rule != "momentum"]


@pytest.mark.portable
@pytest.mark.parametrize(("name", "rule"), SUMMED)
def test_uploads_added_up_as_they_come_are_the_same_to_the_last_bit(name, rule):
    """Real clients and Ray's actors send uploads, which are stacked; the loop adds them up at once."""
    stacked, summed = (
        drive(World().engine("loop", workers=2), WEIGHING[name], RULES[rule], adds=adds)
        for adds in (False, True)
    )
    assert_same(stacked, summed, 0)


@pytest.mark.portable
@pytest.mark.parametrize("kind", ["vectorised", "compiled"])
@pytest.mark.parametrize("name", WEIGHING)
def test_stacks_of_uploads_too(name, kind, monkeypatch):
    monkeypatch.setattr(compiled, "BLOCK_BYTES", 3000)  # some clients each, so that there are parts
    monkeypatch.setattr(compiled, "REPORT_BYTES", 1000)
    world = World("chain", dtype=torch.float64) if kind == "compiled" else World()
    rule = Sgd(momentum=0.5, carried=True)
    stacked, summed = (
        drive(world.engine(kind, chunk=2), WEIGHING[name], rule, adds=adds)
        for adds in (False, True)
    )
    assert_same(stacked, summed, 0)
    if kind == "compiled":  # what is a client's own stays its own, in whatever part it is
        loop = drive(world.engine("loop"), WEIGHING[name], rule)
        assert_same(loop, summed, 1e-12)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("kind", ["loop", "vectorised"])
def test_the_first_client_that_breaks_is_named(kind, adds):
    """Client 0 makes fewer steps than client 3, so that stacks have it behind."""

    class Breaks(FedAvg):
        def report(self, y, walk, down, mine):
            up, mine = super().report(y, walk, down, mine)
            return tree_map(lambda leaf: leaf / (walk.steps < 0), up), mine

    with (
        closing(World().engine(kind, chunk=2)) as engine,
        pytest.raises(TrainingError, match=r"round 0, client 0: .* numbers"),
    ):
        drive(engine, Breaks(), RULES["sgd"], [(0, 3, 5)], adds=adds)


def test_an_aggregate_from_anywhere_does_away_with_weights():
    class Mixin:
        def aggregate(self, server, up, cohort):
            return Server(server.x + up.delta.median(0).values, server.rule)

    class Median(Mixin, FedAvg):
        pass

    class Again(Median):
        def weigh(self, share, walk):
            return share

    ones = torch.ones(2)
    assert Median().weigh(ones, None) is None
    assert Again().weigh(ones, None) is ones


def test_sums_of_numbers_of_any_kind():
    stacked = Upload(torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64))
    assert weighted(stacked, torch.tensor([0.5, 0.25])).delta.tolist() == [1.25, 2]
    assert weighted(rows(stacked, slice(0)), torch.ones(0)).delta.tolist() == [0, 0]


def test_whoever_aggregates_otherwise_does_not_weigh():
    class Median(FedAvg):
        def aggregate(self, server, up, cohort):
            return Server(server.x + up.delta.median(0).values, server.rule)

    class Heavier(FedAvg):
        def weigh(self, share, walk):
            return share**2 / (share**2).sum()

    assert Median().weigh(torch.ones(2), None) is None
    torch.testing.assert_close(
        Heavier().weigh(torch.tensor([0.25, 0.75]), None), torch.tensor([0.1, 0.9])
    )
