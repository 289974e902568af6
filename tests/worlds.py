"""Small worlds for tests: engines from a kind and settings, one round of a cohort, comparisons of runs."""

from dataclasses import fields

import numpy as np
import torch

from fedtide.algorithms.fedavg import FedAvg
from fedtide.engines.kinds import ENGINES
from fedtide.training.messages import Broadcast
from fedtide.training.train import Train


def settings_of(kind="auto", **settings):
    """The settings of this kind of engine; settings that it does not have are left out."""
    known = {f.name for f in fields(ENGINES[kind])}
    return ENGINES[kind](**{name: value for name, value in settings.items() if name in known})


def build_engine(settings, task, data, buffers="average", algorithm=None):
    """The engine for a task and clients, as a run would build it."""
    return settings.build(task, data, Train(epochs=1, buffers=buffers), algorithm or FedAvg())


def train_cohort(
    engine,
    algorithm,
    rule,
    lr,
    down,
    buffers,
    ids,
    steps,
    t,
    purpose="batch",
    adds=False,
    ages=None,
):
    """One round of these clients; all of them exist since round 0, unless `ages` say otherwise."""
    broadcast = Broadcast(algorithm, rule, lr, down, buffers, t, purpose)
    walk = broadcast.walk(steps, np.full(len(ids), t) if ages is None else ages)
    weights = algorithm.weigh(share_of(engine, t, ids), walk) if adds else None
    return engine.run(broadcast, ids, walk, weights)


def share_of(engine, t, ids):
    """The share of a cohort's examples that each of its clients holds."""
    sizes = engine.data.holdings.sizes(t, ids)
    return torch.from_numpy(sizes / sizes.sum()).to(engine.task.initial.x)


def timeless(lines):
    """The lines of a journal without wall time."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def study_files(folder):
    """Every study file in a folder and its folders; published numbers of papers are none."""
    return sorted(path for path in folder.rglob("*.toml") if path.name != "published.toml")
