"""Each client's own test: how good the global model is for single clients, and what fine-tuning gains."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.rng import stream
from fedtide.core.trees import repeated, tree_map
from fedtide.core.types import Ids, Model, Nothing
from fedtide.engines.base import Result
from fedtide.measure.fairness import by_shares
from fedtide.measure.own_tests import Bench, told
from fedtide.run.experiment import Experiment
from fedtide.run.state import Asked, memory_aside
from fedtide.run.world import World
from fedtide.training.messages import Broadcast

Floats = NDArray[np.float64]


def client_scores(e: Experiment, world: World, asked: Asked, model: Model) -> dict[str, Any]:
    """What the journal says of clients' own tests after this round."""
    if not e.evaluation.clients:
        return {}
    bench, present, larger = world.bench, np.sort(asked.session.clients), e.task.scores[0].larger
    if bench is None:
        ids = drawn(e, present, asked.t)
        scores = by_shares(world.labels(asked.t, ids), world.by_label(model))
        return {"client_scores": {**told(ids, scores, larger), "proxy": True}}
    ids = drawn(e, bench.known(present), asked.t)
    scores = bench.scores(model, ids)
    if e.train.buffers == "local":
        scores = bench.scores_of_each(with_own_buffers(world, model, ids), ids)
    found = told(ids, scores, larger)
    if e.evaluation.personalise is not None:
        found["personal"] = personal(e, world, bench, asked, model, ids, scores)
    return {"client_scores": found}


def drawn(e: Experiment, known: Ids, t: int) -> Ids:
    """The clients that are tested after round t, sorted."""
    wanted = e.evaluation.clients
    if wanted == "all" or wanted >= len(known):
        return known
    numbers = stream(e.seed, "own tests", t)
    return known[np.sort(numbers.choice(len(known), wanted, replace=False))]


def personal(
    e: Experiment,
    world: World,
    bench: Bench,
    asked: Asked,
    model: Model,
    ids: Ids,
    before: Floats,
) -> dict[str, Any]:
    """The scores after each of these clients has trained the global model on its own examples."""
    holds = world.engine.data.holdings.sizes(asked.t, ids) > 0
    done = fine_tuned(e, world, asked, model, ids[holds])
    place = np.searchsorted(ids, done.ids)
    buffers = repeated(model.buffers, len(done.ids))
    if e.train.buffers != "frozen":
        buffers = done.buffers
    after = bench.scores_of_each(Model(model.x + done.up.delta, buffers), done.ids)
    larger = e.task.scores[0].larger
    gains = (after - before[place]) * (1 if larger else -1)
    gains = gains[np.isfinite(gains)]
    found = told(done.ids, after, larger)
    if len(gains):
        found |= {"gain": float(gains.mean()), "gained": float((gains > 0).mean())}
    return found


def fine_tuned(e: Experiment, world: World, asked: Asked, model: Model, ids: Ids) -> Result:
    """The local training of these clients from the global model; no client remembers it."""
    engine, how = world.engine, e.evaluation.personalise
    assert how is not None
    algorithm = FedAvg()
    broadcast = Broadcast(
        algorithm=algorithm,
        rule=e.train.optimiser,
        lr=how.lr or asked.lr,
        down=algorithm.broadcast(algorithm.init(model.x, world.context)),
        buffers=model.buffers,
        t=asked.t,
        purpose="personalise",
    )
    passes = e.train.per_pass(engine.data.holdings.sizes(asked.t, ids))
    own = engine.memory.kept(ids) if e.train.buffers == "local" else None
    with memory_aside(engine):
        if own is not None and len(own[0]):  # they begin with buffers of their own
            fresh = engine.newcomer(broadcast)
            rule = repeated(fresh.rule, len(own[0]))
            engine.memory.put(own[0], own[1]._replace(mine=Nothing(), rule=rule))
        return engine.run(broadcast, ids, broadcast.walk(how.epochs * passes, np.zeros_like(ids)))


def with_own_buffers(world: World, model: Model, ids: Ids) -> Model:
    """The global model for each of these clients, stacked, with the client's own buffers if it has any."""
    models: Model = tree_map(lambda leaf: leaf.clone(), repeated(model, len(ids)))
    found, kept = world.engine.memory.kept(ids)
    place = np.searchsorted(ids, found)
    for name, buffer in models.buffers.items():
        if len(found):
            buffer[place] = kept.buffers[name]
    return models
