"""A small world in which every algorithm is driven: unequal clients who come, stay away and return."""

from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedtide.algorithms.base import Context
from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.trees import leaves
from fedtide.core.types import Buffers, Cohort, Examples, Nothing, Training
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.engines.kinds import named
from fedtide.models.base import EmbedHead
from fedtide.tasks.task import Task
from fedtide.training.messages import Row
from fedtide.training.optimisers import Adam, Sgd
from fedtide.training.train import Train
from tests.worlds import build_engine, settings_of, train_cohort

CLIENTS = 9
# In batches of 4 that is 1, 2, 2, 3, 2, 1, 3, 4, 3 steps. No last batch has one or two examples: between
# two rows BatchNorm fixes every distance, and the layer before it has no true gradient.
SIZES = (3, 7, 8, 12, 7, 4, 11, 15, 11)
EQUAL = (7,) * CLIENTS
COHORTS = (  # 2 stays, 0 and 3 return, 1, 4 and 6 are newcomers, 7 and 8 are never seen
    (0, 2, 3, 5),
    (1, 2, 5, 6),
    (0, 2, 3, 4, 6),
)
CLASSES = 3
LR = 0.05
# Rules under which engines are compared, and by how much they may differ in double precision. Adam divides
# by the size of a gradient and so magnifies rounding without bound where a gradient is almost zero; MIFA
# and SCAFFOLD divide once more, by lr. In single precision only rules of SGD can be compared.
RULES = {
    "sgd": Sgd(),
    "momentum": Sgd(momentum=0.9, decay=1e-3, clip=1.0),
    "adam": Adam(),
    "carried": Adam(carried=True),
}
ROUNDING = {"sgd": 1e-12, "momentum": 1e-12, "adam": 1e-9, "carried": 1e-9}
MODELS = {
    # No layer has a bias before BatchNorm: its true gradient is zero, and Adam blows rounding up.
    "conv": lambda: EmbedHead(
        nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten()),
        nn.Linear(48, CLASSES),
    ),
    "mlp": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh()),
        nn.Linear(8, CLASSES),
    ),
    # No ReLU: a unit whose input is zero up to rounding would be on for one engine and off for the other.
    "chain": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Linear(8, 6)), nn.Linear(6, CLASSES)
    ),
    "plain": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh()), nn.Linear(8, CLASSES)
    ),
    "dropout": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Dropout(0.4)),
        nn.Linear(8, CLASSES),
    ),
}


@cache
def _task(model: str, dtype: torch.dtype) -> Task:
    """A task does not change, so that all engines can have the same one."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Task(MODELS[model]().to(dtype))


@dataclass(frozen=True)
class World:
    """What the clients hold, the model they train and how they go through their data."""

    model: str = "mlp"
    sizes: tuple[int, ...] = SIZES
    batching: Batching = field(default_factory=lambda: Batching(batch_size=4, epochs=1))
    policy: str = "average"
    dtype: torch.dtype = torch.float32

    def examples(self) -> Examples:
        rng = np.random.default_rng(5)
        inputs = torch.from_numpy(rng.normal(size=(sum(self.sizes), 1, 6, 6))).to(self.dtype)
        return Examples(inputs, torch.from_numpy(rng.integers(CLASSES, size=len(inputs))))

    def task(self) -> Task:
        return _task(self.model, self.dtype)

    def data(self) -> ClientData:
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        holdings = Static.of_owners(owners, len(self.sizes))
        return ClientData(self.examples(), holdings, self.batching, seed=11)

    def engine(self, kind: str, workers: int = 1, chunk: int = 0, **more: Any):
        choice = settings_of(kind=kind, workers=workers, chunk=chunk, device="cpu", **more)
        if kind not in TRIED:
            return build_engine(choice, self.task(), self.data(), self.policy)
        train, (engine, traits) = Train(epochs=1, buffers=self.policy), _tried(self, kind)
        return choice.made(engine, "", self.task(), self.data(), train, traits)


TRIED = ("loop", "vectorised", "compiled")


@cache
def _tried(world: World, kind: str):
    """The class of an engine and the traits of the model, from one trial step for all tests of a world."""
    train = Train(epochs=1, buffers=world.policy)
    return named(kind, world.task(), world.data(), train, FedAvg())


class Outcome(NamedTuple):
    """Everything a run leaves behind."""

    server: Any
    buffers: Buffers
    memories: dict[int, Row]  # of every client seen
    training: list[dict[int, Training]]  # by round and client
    clients: list[dict[int, Buffers]]  # every client's buffers, by round


def drive(engine, algorithm, rule, cohorts=COHORTS, lr=LR, adds=False) -> Outcome:
    """The loop of `loop.run` over given cohorts."""
    train = Train(epochs=1, buffers=engine.buffers)
    x, buffers = engine.task.initial
    population = engine.data.holdings.clients
    server = algorithm.init(x, Context(engine.task.layout, population))
    training, clients = [], []
    with closing(engine):
        for t, members in enumerate(cohorts):
            ids = np.array(members)
            down = algorithm.broadcast(server)
            steps = engine.data.steps(t, ids)
            result = train_cohort(
                engine, algorithm, rule, lr, down, buffers, ids, steps, t, adds=adds
            )
            ids = result.ids
            engine.keep(result, ids)
            sizes = engine.data.holdings.sizes(t, ids)
            share = torch.from_numpy(sizes / sizes.sum()).to(x)
            cohort = Cohort(torch.from_numpy(ids), share, result.walk, population, t)
            server = result.aggregated(algorithm, server, cohort)
            training.append(by_client(ids, result.training))
            buffers = train.next_buffers(buffers, result.buffers, share)
            clients.append(by_client(ids, result.buffers))
    return Outcome(server, buffers, remembered(engine, algorithm, rule, down), training, clients)


def remembered(engine, algorithm, rule, down) -> dict[int, Row]:
    """What the engine keeps for each client it has seen."""
    seen = np.array([client for client in range(CLIENTS) if client in engine.memory], dtype=int)
    if not len(seen):
        return {}
    local = engine.task.initial.buffers if engine.buffers == "local" else {}
    started = rule.start(down.x) if rule.carried else Nothing()
    return by_client(seen, engine.memory.take(seen, Row(algorithm.memory(down), started, local)))


def by_client(ids, stacked):
    if isinstance(stacked, dict):
        return {int(c): {n: b[u] for n, b in stacked.items()} for u, c in enumerate(ids)}
    return {int(client): _row(stacked, u) for u, client in enumerate(ids)}


def _row(stacked, u):
    if isinstance(stacked, torch.Tensor):
        return stacked[u]
    if isinstance(stacked, dict):
        return {name: _row(part, u) for name, part in stacked.items()}
    return type(stacked)(*(_row(part, u) for part in stacked))


@cache
def outcome(name, algorithm, rule: str, kind: str, world: World = World()) -> Outcome:  # noqa: B008
    """A run that several tests look at; the `name` keeps equal-looking algorithms apart."""
    return drive(world.engine(kind), algorithm, RULES[rule])


def assert_same(one: Outcome, other: Outcome, atol: float) -> None:
    """The same shapes and, up to rounding, the same numbers; `atol=0` means every bit.

    Numbers above 1 may differ in proportion: SCAFFOLD's control variates are models divided by K lr.
    """
    assert sorted(one.memories) == sorted(other.memories)
    assert [sorted(t) for t in one.training] == [sorted(t) for t in other.training]
    pairs = [("server", one.server, other.server), ("buffers", one.buffers, other.buffers)]
    pairs += [(f"memory {c}", one.memories[c], other.memories[c]) for c in one.memories]
    for t, seen in enumerate(one.training):
        pairs += [(f"training {t} {c}", seen[c], other.training[t][c]) for c in seen]
        pairs += [
            (f"buffers {t} {c}", one.clients[t][c], other.clients[t][c]) for c in one.clients[t]
        ]
    for where, mine, theirs in pairs:
        for a, b in zip(leaves(mine), leaves(theirs), strict=True):
            torch.testing.assert_close(
                a, b, atol=atol, rtol=atol, msg=lambda text, where=where: f"{where}: {text}"
            )
