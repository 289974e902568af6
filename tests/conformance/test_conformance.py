"""What every algorithm must satisfy, on every engine, with every local rule."""

import pickle
from dataclasses import fields
from itertools import cycle

import numpy as np
import pytest
import torch

from fedtide.algorithms import ALGORITHMS
from fedtide.algorithms.base import Context
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.parts.table import Table
from fedtide.core.trees import leaves, rows
from fedtide.data.batches import Batching
from fedtide.data.holdings import Static
from fedtide.engines.trial import is_chain
from fedtide.tasks.task import Task
from tests.conformance.arena import (
    CLIENTS,
    COHORTS,
    LR,
    ROUNDING,
    RULES,
    SIZES,
    World,
    assert_same,
    drive,
    outcome,
)
from tests.conformance.table import EQUAL_SIZES, TABLE
from tests.worlds import train_cohort

KINDS = ["loop", "vectorised"]
SINGLE = 1e-5  # of numbers in single precision, trained by SGD
DOUBLE = torch.float64
names = pytest.mark.parametrize("name", TABLE)
kinds = pytest.mark.parametrize("kind", KINDS)


def test_every_algorithm_has_its_row():
    assert list(TABLE) == list(ALGORITHMS)
    for name, row in TABLE.items():
        assert type(row.algorithm) is ALGORITHMS[name]
        assert row.reduction is None or type(row.reduction) is ALGORITHMS[name]


# Engines agree

# Optimisers compute with vectors, whatever the model: every algorithm meets every optimiser with the MLP, and
# convolutions with one optimiser, so that all four meet convolutions.
AGREE = [("mlp", rule, name) for rule in RULES for name in TABLE]
AGREE += [("conv", rule, name) for rule, name in zip(cycle(RULES), TABLE, strict=False)]


@pytest.mark.portable
@pytest.mark.parametrize(("model", "rule", "name"), AGREE)
def test_engines_agree(model, rule, name):
    algorithm, world = TABLE[name].algorithm, World(model, dtype=DOUBLE)
    loop, vectorised = (outcome(name, algorithm, rule, kind, world) for kind in KINDS)
    assert_same(loop, vectorised, ROUNDING[rule])
    assert not torch.equal(loop.server.x, world.task().initial.x)


@pytest.mark.portable
@names
@pytest.mark.parametrize("rule", RULES)
def test_closed_forms_agree(name, rule):
    algorithm, world = TABLE[name].algorithm, World("chain", dtype=DOUBLE)
    assert is_chain(world.task())
    loop, *fast = (outcome(name, algorithm, rule, kind, world) for kind in [*KINDS, "compiled"])
    for other in fast:
        assert_same(loop, other, ROUNDING[rule])


@pytest.mark.portable
@names
@pytest.mark.parametrize("model", ["mlp", "conv", "chain"])
def test_engines_agree_in_single_precision(name, model):
    algorithm, world = TABLE[name].algorithm, World(model)
    fast = ["vectorised", "compiled"] if model == "chain" else ["vectorised"]
    loop = outcome(name, algorithm, "momentum", "loop", world)
    for kind in fast:
        assert_same(loop, outcome(name, algorithm, "momentum", kind, world), SINGLE)


@names
@kinds
def test_threads_leave_every_bit_in_place(name, kind):
    algorithm = TABLE[name].algorithm
    two = drive(World().engine(kind, workers=2, chunk=2), algorithm, RULES["carried"])
    one = drive(World().engine(kind, workers=1, chunk=2), algorithm, RULES["carried"])
    assert_same(one, two, 0)


@names
@pytest.mark.parametrize("rule", ["sgd", "carried"])
def test_threads_leave_every_bit_of_compiled_rounds_in_place(name, rule):
    algorithm, world = TABLE[name].algorithm, World("chain")
    one, *more = (
        drive(world.engine("compiled", workers=workers, chunk=2), algorithm, RULES[rule])
        for workers in (1, 2, 5)
    )
    for other in more:
        assert_same(one, other, 0)


@pytest.mark.portable
@names
@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_agree(name, chunk):
    algorithm = TABLE[name].algorithm
    chunked = drive(World().engine("vectorised", chunk=chunk), algorithm, RULES["momentum"])
    assert_same(outcome(name, algorithm, "momentum", "vectorised"), chunked, SINGLE)


@pytest.mark.portable
@names
@kinds
def test_the_order_of_a_cohort_does_not_matter(name, kind):
    algorithm = TABLE[name].algorithm
    shuffled = [tuple(np.random.default_rng(len(c)).permutation(c)) for c in COHORTS]
    assert any(a != b for a, b in zip(shuffled, COHORTS, strict=True))
    other = drive(World().engine(kind), algorithm, RULES["momentum"], shuffled)
    assert_same(outcome(name, algorithm, "momentum", kind), other, SINGLE)


@pytest.mark.portable
@names
@kinds
def test_the_numbers_of_clients_do_not_matter(name, kind):
    """Clients change names; each step takes all of a client's data, as batches depend on its name."""
    algorithm = TABLE[name].algorithm
    world = World("plain", batching=Batching(batch_size=12, epochs=2), dtype=DOUBLE)
    new = np.random.default_rng(1).permutation(CLIENTS)  # client u is now called new[u]
    renamed = world.engine(kind)
    owners = new[np.repeat(np.arange(CLIENTS), SIZES)]
    object.__setattr__(renamed.data, "holdings", Static.of_owners(owners, CLIENTS))
    cohorts = [tuple(new[list(cohort)]) for cohort in COHORTS]
    one = outcome(name, algorithm, "momentum", kind, world)
    other = drive(renamed, algorithm, RULES["momentum"], cohorts)
    one = one._replace(server=with_new_names(one.server, torch.from_numpy(new)))
    for a, b in zip(leaves(one.server), leaves(other.server), strict=True):
        torch.testing.assert_close(a, b, atol=ROUNDING["momentum"], rtol=0)
    assert sorted(other.memories) == sorted(int(new[client]) for client in one.memories)
    for client, row in one.memories.items():
        for a, b in zip(leaves(row), leaves(other.memories[int(new[client])]), strict=True):
            torch.testing.assert_close(a, b, atol=ROUNDING["momentum"], rtol=0)


def with_new_names(server, new):
    """The server's state as it is when client u is called new[u]: tables have a row per client."""
    if not hasattr(server, "last"):
        return server
    ids, order = new[server.last.ids].sort()
    server = server._replace(last=Table(ids, rows(server.last.every, order), server.last.here))
    return server._replace(score=server.score[order]) if hasattr(server, "score") else server


# Reductions and invariants


@pytest.mark.portable
@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if row.reduction is not None])
@pytest.mark.parametrize("rule", RULES)
@kinds
def test_reductions_are_exact(name, rule, kind):
    row = TABLE[name]
    plain = outcome("fedavg", FedAvg(), rule, kind, row.world)
    reduced = outcome(f"{name} reduced", row.reduction, rule, kind, row.world)
    assert torch.equal(plain.server.x, reduced.server.x)


@names
@kinds
def test_no_algorithm_is_another_in_disguise(name, kind):
    """With the settings of the table every algorithm leaves FedAvg behind, so reductions mean something."""
    plain = outcome("fedavg", FedAvg(), "sgd", kind)
    own = outcome(name, TABLE[name].algorithm, "sgd", kind)
    assert (plain.server.x - own.server.x).abs().max() > 1e-3


@pytest.mark.portable
@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if row.invariant is not None])
@pytest.mark.parametrize("rule", RULES)
@kinds
def test_invariants(name, rule, kind):
    """The server's variate is the mean of the clients', those never seen included."""
    row = TABLE[name]
    field, mean = row.invariant
    done = outcome(name, row.algorithm, rule, kind, World(dtype=DOUBLE))
    kept = getattr(done.server, field)
    assert kept.abs().max() > 1e-3
    torch.testing.assert_close(kept, mean(done.memories), atol=1e-12, rtol=0)


# Purity


class Watched:
    """An algorithm whose every method is checked to leave its arguments alone."""

    def __init__(self, algorithm):
        self.algorithm, self.called = algorithm, set()

    def __getattr__(self, name):
        method = getattr(self.algorithm, name)
        if not callable(method):
            return method

        def call(*arguments):
            self.called.add(name)
            before = [part.detach().clone() for part in tensors(arguments)]
            answer = method(*arguments)
            for old, new in zip(before, tensors(arguments), strict=True):
                assert torch.equal(old, new), f"{name} changed its arguments"
            return answer

        return call


def tensors(tree):
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from tensors(part)
    elif isinstance(tree, dict):
        yield from tensors(list(tree.values()))


@names
def test_methods_leave_their_arguments_alone(name):
    algorithm = TABLE[name].algorithm
    watched = Watched(algorithm)
    seen = drive(World().engine("loop"), watched, RULES["momentum"])
    assert watched.called >= {
        "init", "broadcast", "memory", "penalty", "direction", "report", "aggregate"
    }  # fmt: skip
    assert_same(seen, outcome(name, algorithm, "momentum", "loop"), 0)


@names
@kinds
def test_a_round_leaves_its_arguments_alone(name, kind):
    algorithm, rule = TABLE[name].algorithm, RULES["carried"]
    engine = World(policy="local").engine(kind)
    x, buffers = engine.task.initial
    down = algorithm.broadcast(algorithm.init(x, Context(engine.task.layout, CLIENTS)))
    ids, steps = np.array(COHORTS[0]), engine.data.steps(0, np.array(COHORTS[0]))
    for t in range(2):  # newcomers first, then clients that remember
        given = (down, dict(buffers))
        before = [part.clone() for part in tensors(given)]
        result = train_cohort(engine, algorithm, rule, LR, down, buffers, ids, steps, t)
        engine.keep(result, ids)
        kept = [part.clone() for part in tensors(tuple(result))]
        assert all(map(torch.equal, before, tensors(given)))
    train_cohort(engine, algorithm, rule, LR, down, buffers, ids, steps, 2)
    assert all(map(torch.equal, kept, tensors(tuple(result))))  # nor does a later round reach back
    assert ids.tolist() == list(COHORTS[0])
    engine.close()


@names
@kinds
def test_two_runs_are_the_same_run(name, kind):
    algorithm = TABLE[name].algorithm
    again = drive(World().engine(kind), algorithm, RULES["momentum"])
    assert_same(outcome(name, algorithm, "momentum", kind), again, 0)


@names
def test_algorithms_survive_pickling_and_cannot_change(name):
    row = TABLE[name]
    for algorithm in filter(None, (row.algorithm, row.reduction, ALGORITHMS[name]())):
        assert pickle.loads(pickle.dumps(algorithm)) == algorithm
        assert hash(pickle.loads(pickle.dumps(algorithm))) == hash(algorithm)
        for field in fields(algorithm):
            with pytest.raises(AttributeError):
                setattr(algorithm, field.name, 0)


@pytest.mark.parametrize("model", ["mlp", "conv"])
def test_a_task_survives_pickling(model):
    engine = World(model).engine("loop")
    engine.task = pickle.loads(pickle.dumps(engine.task))
    assert isinstance(engine.task, Task)
    pickled = drive(engine, TABLE["moon"].algorithm, RULES["sgd"])
    assert_same(outcome("moon", TABLE["moon"].algorithm, "sgd", "loop", World(model)), pickled, 0)


# Equal worlds, so that the reductions above cannot pass by accident


def test_the_worlds_are_what_they_say():
    everyone = np.arange(CLIENTS)
    unequal, equal = World().engine("loop"), EQUAL_SIZES.engine("loop")
    assert len(set(unequal.data.steps(0, everyone).tolist())) > 1
    picks = unequal.data.picks(0, everyone, unequal.data.steps(0, everyone), "batch")
    assert not picks.mask.all()
    assert len(set(equal.data.holdings.sizes(0, everyone).tolist())) == 1
