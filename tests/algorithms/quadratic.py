"""Clients whose loss is a parabola: everything they do can be computed by hand.

Client i holds examples with target a_i; its loss is (y - a_i)^2 / 2 and its gradient y - a_i.
"""

from contextlib import closing

import numpy as np
import torch
from torch import nn

from fedtide.algorithms.base import Context
from fedtide.core.task import Task
from fedtide.core.types import Cohort, Examples
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.engines.choose import EngineChoice
from fedtide.engines.rules import Sgd


class Scalar(nn.Module):
    """A model that answers its one parameter, whatever it is asked."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def forward(self, inputs):
        return self.w.expand(len(inputs), 1)


def half_square(logits, targets):
    return (logits[:, 0] - targets).square() / 2


class Parabolas:
    """A server and its clients; `round` plays one round and answers the clients' reports."""

    def __init__(self, algorithm, targets, start=0.0, sizes=None, lr=0.1, rule=None, kind="loop"):
        sizes = sizes or [1] * len(targets)
        self.algorithm, self.lr, self.rule = algorithm, lr, rule or Sgd()
        owners = np.repeat(np.arange(len(targets)), sizes)
        values = torch.tensor(np.repeat(targets, sizes), dtype=torch.float64)
        self.data = ClientData(
            Examples(torch.zeros(len(values), 1), values),
            Static.of_owners(owners, len(targets)),
            Batching(batch_size=max(sizes), epochs=1),
            seed=0,
        )
        self.kind, self.task = kind, Task(Scalar(start), half_square)
        self.population = len(targets)
        self.server = algorithm.init(
            self.task.initial.x, Context(self.task.layout, self.population)
        )
        self.engine = EngineChoice(kind=kind, workers=1, device="cpu").build(
            self.task, self.data, "average"
        )
        # Every step sees all of a client's examples, as often as the round asks.
        self.engine.data = _Endless(self.data)
        self.t = -1

    def round(self, ids, steps):
        self.t += 1
        ids, steps = np.array(ids), np.array(steps)
        with closing(self.engine):
            result = self.engine.run(
                self.algorithm,
                self.rule,
                self.lr,
                self.algorithm.broadcast(self.server),
                {},
                ids,
                steps,
                self.t,
            )
        sizes = self.data.holdings.sizes(self.t, ids)
        share = torch.from_numpy(sizes / sizes.sum())
        cohort = Cohort(torch.from_numpy(ids), share, result.walk, self.population, self.t)
        self.server = self.algorithm.aggregate(self.server, result.up, cohort)
        return result

    @property
    def x(self):
        return float(self.server.x)

    def memory(self, client):
        """What one client remembers."""
        fresh = self.algorithm.memory(self.algorithm.broadcast(self.server))
        row = self.engine.memory.take(np.array([client]), type(_row)(fresh, _nothing, {}))
        return float(row.mine[0])


class _Endless:
    def __init__(self, data):
        self.examples, self.holdings, self.seed = data.examples, data.holdings, data.seed
        self._batching = data.batching

    def picks(self, t, ids, steps, purpose):
        many = Batching(batch_size=self._batching.batch_size, epochs=int(steps.max()))
        return ClientData(self.examples, self.holdings, many, self.seed).picks(
            t, ids, steps, purpose
        )
