"""Rehearsals: rounds of the algorithm that leave no trace with the clients, only a model and a bill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedtide.core.rng import stream
from fedtide.core.types import Ids, Model, Plan, Session, Work
from fedtide.engines.base import Engine
from fedtide.network.plan import Network
from fedtide.run.world import House
from fedtide.training.client import AnyAlgorithm

SLOWER = 0.5  # of the learning rate: gradient rounds in the code of the DIMC paper


@dataclass
class Rehearsal:
    """The gradient rounds of one start; `bill` adds up what they cost (section V of the DIMC paper)."""

    house: House
    algorithm: AnyAlgorithm
    network: Network
    state: Any  # of the network
    session: Session
    t: int
    seed: int
    adds: bool = False  # is a sum of the uploads enough?
    bill: dict[str, Any] = field(default_factory=dict)

    def __call__(self, model: Model, rounds: int, clients: int = 0) -> Model:
        """The model after `rounds` from `model`, with the session's clients or a sample of them."""
        house, train = self.house, self.house.train
        server = self.algorithm.init(model.x, house.context)
        asked = self._sample(clients)
        with aside(house.engine):
            for v in range(rounds):
                down = self.algorithm.broadcast(server)
                work = house.work(self.t, asked, self.algorithm, down)
                plan, self.state = self.network.plan(self.state, self.t, asked, work, self.seed)
                self._charge(plan, work)
                ids, steps = asked[plan.able], plan.steps[plan.able]
                if not len(ids):
                    continue
                result = house.engine.run(
                    self.algorithm,
                    train.optimiser,
                    SLOWER * train.lr,
                    down,
                    model.buffers,
                    ids,
                    steps,
                    self.t,
                    purpose=f"gradient {v}",
                    adds=self.adds,
                )
                if not len(result.ids):
                    continue
                house.engine.keep(result, result.ids)
                cohort = house.cohort(self.t, result.ids, result.walk)
                server = result.aggregated(self.algorithm, server, cohort)
                model = house.next_model(server.x, model, result, cohort)
        return model

    def _sample(self, clients: int) -> Ids:
        everyone = self.session.clients
        if not clients or clients >= len(everyone):
            return everyone
        picked = stream(self.seed, "gradient", self.t).choice(len(everyone), clients, replace=False)
        return everyone[np.sort(picked)]

    def _charge(self, plan: Plan, work: Work) -> None:
        able = int(plan.able.sum())
        costs = {
            "gradient_rounds": 1,
            "gradient_uploads": able,
            "steps": int(plan.steps[plan.able].sum()),
            "bytes_down": able * work.bytes_down,
            "bytes_up": able * work.bytes_up,
            "latency": plan.latency,
            "joules": float(plan.joules.sum()),
        }
        self.bill = {name: self.bill.get(name, 0) + cost for name, cost in costs.items()}


@contextmanager
def aside(engine: Engine) -> Iterator[None]:
    """What clients remember inside is forgotten, what they remembered before is there again."""
    kept, engine.memory = engine.memory, engine.memory.anew()
    try:
        yield
    finally:
        engine.memory = kept
