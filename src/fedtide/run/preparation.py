"""What a start asks of clients before the first round of a session: gradient rounds, and tests of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from fedtide.core.rng import stream
from fedtide.core.trees import size_bytes
from fedtide.core.types import Ids, Model, Session, Tested
from fedtide.run.experiment import Experiment
from fedtide.run.round import broadcast_state, gate, move, plan, train
from fedtide.run.state import Asked, Members, Now, memory_aside
from fedtide.run.world import World
from fedtide.starts.base import Beginning

SLOWER = 0.5  # of the learning rate: gradient rounds in the code of the DIMC paper
FORWARD = 1 / 3  # of a training step's arithmetic is its forward pass
NUMBER = 8  # bytes of a loss or a weight in a message


@dataclass
class Preparation:
    """Gradient rounds and tests before a start; `bill` adds up what they cost."""

    e: Experiment
    world: World
    session: Session
    t: int
    now: Now
    bill: dict[str, Any] = field(default_factory=dict)
    _held: Sequence[Model] = ()  # models that clients received with the last test

    @property
    def known(self) -> Beginning:
        """What a start knows, and may ask of clients, at the beginning of this session."""
        now, world = self.now, self.world
        return Beginning(
            now.era.number + 1,
            self.session,
            world.initial,
            now.model,
            world.layout,
            now.archive,
            self.gradient_rounds,
            self.losses,
            self.e.algorithm.counts_examples,
        )

    def gradient_rounds(
        self, model: Model, rounds: int, clients: int = 0, half: int = 0, memories: bool = False
    ) -> Model:
        """The model after so many rounds from `model`, with the session's clients or a sample of them.

        Their costs are those of section V of the DIMC paper. With `memories` clients use and change theirs.
        """
        e, world, t = self.e, self.world, self.t
        ids = self._half(clients, half) if half else self._sample(clients)
        present = np.sort(self.session.clients)
        now = self.now._replace(
            server=e.algorithm.init(model.x, world.context),
            model=model,
            members=Members(t, present, np.zeros_like(present)),
        )
        with nullcontext() if memories else memory_aside(world.engine):
            for v in range(rounds):
                asked, now = self._ask(f"gradient {v}", ids, now)
                result = train(e, world, asked, now)
                now, _ = move(e, world, asked, result, now)
        self.now = self.now._replace(network=now.network)
        return now.model

    def losses(
        self, models: Sequence[Model], mixes: Tensor, clients: int = 0, ids: Ids | None = None
    ) -> Tested:
        """Clients' losses at weighted sums of models, without clients that cannot afford the test."""
        e, world, t, now = self.e, self.world, self.t, self.now
        ids = np.sort(self._spread_sample(clients) if ids is None else ids)
        work = world.work(t, ids, e.algorithm, broadcast_state(e, now))
        passes = FORWARD * len(mixes) * work.examples
        sent = mixes.numel() * NUMBER + (0 if models is self._held else size_bytes(tuple(models)))
        work = work._replace(
            steps=np.ceil(passes / work.batch_size).astype(np.int64),
            bytes_down=sent,
            bytes_up=len(mixes) * NUMBER,
        )
        planned, network = e.network.plan(now.network, t, ids, work, e.seed)
        asked = Asked(t, self.session, ids, work, planned, 0.0, {}, {}, f"test {len(mixes)}")
        planned, _ = e.faults.strike(planned, t, ids, gate(e, asked).seed)
        able = planned.able & (planned.steps >= work.steps)
        answers = world.engine.losses(models, mixes, ids[able], t)
        self._held, self.now = models, now._replace(network=network)
        self._add(
            {
                "test_exchanges": 1,
                "test_answers": len(answers.ids),
                "bytes_down": int(able.sum()) * work.bytes_down,
                "bytes_up": int(able.sum()) * work.bytes_up,
                "latency": planned.latency,
                "joules": float(planned.joules.sum()),
            }
        )
        return gate(e, asked).tested(answers, world.hostile, t)

    def _ask(self, purpose: str, ids: Ids, now: Now) -> tuple[Asked, Now]:
        """A gradient round before it is trained; its costs go to the bill."""
        e, t = self.e, self.t
        work, planned, now = plan(e, self.world, t, ids, now)
        asked = Asked(t, self.session, ids, work, planned, SLOWER * e.train.lr, {}, {}, purpose)
        planned, _ = e.faults.strike(planned, t, ids, gate(e, asked).seed)
        able = int(planned.able.sum())
        self._add(
            {
                "gradient_rounds": 1,
                "gradient_uploads": able,
                "steps": int(planned.steps[planned.able].sum()),
                "bytes_down": able * work.bytes_down,
                "bytes_up": able * work.bytes_up,
                "latency": planned.latency,
                "joules": float(planned.joules.sum()),
            }
        )
        return asked._replace(plan=planned), now

    def _add(self, costs: Mapping[str, Any]) -> None:
        self.bill |= {name: self.bill.get(name, 0) + cost for name, cost in costs.items()}

    def _sample(self, clients: int) -> Ids:
        everyone = self.session.clients
        if not clients or clients >= len(everyone):
            return everyone
        numbers = stream(self.e.seed, "gradient", self.t)
        return everyone[np.sort(numbers.choice(len(everyone), clients, replace=False))]

    def _half(self, clients: int, half: int) -> Ids:
        """The first or second half of a sample, in random order; the halves have no client in common."""
        ids = self._sample(clients)
        return np.sort(stream(self.e.seed, "half", self.t).permutation(ids)[half - 1 :: 2])

    def _spread_sample(self, clients: int) -> Ids:
        """A sample in which newcomers and large stores have the share that they have among all clients.

        Systematic sampling: clients in order of newcomers and sizes, at equal distances from a random one.
        """
        everyone = np.sort(self.session.clients)
        if not clients or clients >= len(everyone):
            return everyone
        is_new = ~np.isin(everyone, self.now.era.clients)
        sizes = self.world.engine.data.holdings.sizes(self.t, everyone)
        first = stream(self.e.seed, "test", self.t).random()
        places = ((first + np.arange(clients)) * len(everyone) / clients).astype(np.int64)
        return everyone[np.lexsort((sizes, is_new))[places]]
