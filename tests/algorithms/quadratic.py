"""Clients whose loss is a parabola: everything they do can be computed by hand.

Client i holds examples with target a_i; its loss is (y - a_i)^2 / 2 and its gradient y - a_i. With the
learning rate 1/2 a plain step is y <- (y + a_i) / 2: half of the way to a_i.
"""

import numpy as np
import torch
from torch import nn

from fedtide.algorithms.base import Context
from fedtide.core.types import Cohort, Examples
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.tasks.kinds import Classification
from fedtide.tasks.task import Task
from fedtide.training.optimisers import Sgd
from tests.worlds import build_engine, settings_of, train_cohort

STEPS = 5  # more than any example below makes


class Constant(nn.Module):
    """A model that answers its parameters, whatever it is asked."""

    def __init__(self, *start):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, inputs):
        return self.w.expand(len(inputs), -1)


def half_square(logits, targets):
    return (logits[:, 0] - targets).square() / 2


class Parabolas:
    """A server and its clients, who all start at 0."""

    def __init__(self, algorithm, targets, sizes=None, rule=None, lr=0.5, kind="loop"):
        sizes = sizes or [1] * len(targets)
        self.algorithm, self.rule, self.lr, self.t = algorithm, rule or Sgd(), lr, 0
        values = torch.tensor(np.repeat(targets, sizes), dtype=torch.float64)
        owners = np.repeat(np.arange(len(targets)), sizes)
        self.population = len(targets)
        self.holdings = Static.of_owners(owners, len(targets))
        # Every step sees all of a client's data.
        whole = Batching(batch_size=max(sizes), epochs=STEPS)
        examples = Examples(torch.zeros(len(values), 1), values)
        task = Task(Constant(0.0), Classification(loss=half_square))
        data = ClientData(examples, self.holdings, whole, seed=0)
        self.engine = build_engine(settings_of(kind=kind, workers=1, device="cpu"), task, data)
        self.server = algorithm.init(task.initial.x, Context(task.layout, len(targets)))

    def round(self, ids, steps):
        """One round; answers what came back from the cohort."""
        ids, steps = np.array(ids), np.array(steps)
        down = self.algorithm.broadcast(self.server)
        done = train_cohort(
            self.engine, self.algorithm, self.rule, self.lr, down, {}, ids, steps, self.t
        )
        self.engine.keep(done, ids)
        sizes = self.holdings.sizes(self.t, ids)
        share = torch.from_numpy(sizes / sizes.sum())
        cohort = Cohort(torch.from_numpy(ids), share, done.walk, self.population, self.t)
        self.server = self.algorithm.aggregate(self.server, done.up, cohort)
        self.t += 1
        return done
