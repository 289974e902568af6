"""A population that is observed while the run goes on: the clients that are connected when a round begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedtide.core.errors import require
from fedtide.core.types import Ids, Session
from fedtide.population.sessions import Fixed, Population


@dataclass(frozen=True, kw_only=True)
class Live(Fixed):
    """The clients that are connected; a session lasts until a client comes or goes.

    `fedtide deploy` observes the clients of a real network. From Python, `who` is a function that returns the
    ids of the clients that are there when round t begins. Without it, as in `fedtide run`, all `clients` are
    always there. `rounds` is the number of all rounds.
    """

    announced: ClassVar[bool] = False
    as_sessions: ClassVar[bool] = False
    who: Callable[[int], Ids] | None = None

    def opened(self) -> Population:
        if self.who is None:
            return self
        return Observed(clients=self.clients, rounds=self.rounds, who=self.who)


@dataclass(frozen=True, kw_only=True)
class Observed(Live):
    """The live population of one run: `who` is called once for each round, when it begins."""

    log: dict[int, Session] = field(init=False, default_factory=dict, compare=False, repr=False)

    def at(self, t: int, seed: int = 0) -> Session:
        if t not in self.log:
            assert self.who is not None
            here = np.unique(np.asarray(self.who(t), dtype=np.int64))
            known = bool((here >= 0).all() and (here < self.clients).all())
            require(known, "population.who", f"clients below {self.clients}", here.tolist())
            before = self.log.get(t - 1)
            if before and np.array_equal(before.clients, here):
                self.log[t] = before
            else:  # how long it will last is unknown; learning-rate schedules assume to the end
                number = before.number + 1 if before else 0
                self.log[t] = Session(number, here, t, self.rounds - t)
        return self.log[t]
