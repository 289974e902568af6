"""A population that nobody announces: whoever is there when a round begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedtide.core.errors import require
from fedtide.core.types import Group, Ids, Session
from fedtide.population.sessions import Population, numbered


@dataclass(frozen=True, kw_only=True)
class Live(Population):
    """Whoever is connected; a session lasts until somebody comes or goes.

    `fedtide deploy` observes the clients of a real network. From Python, `who(t)` may be any function.
    Where nobody observes, as in `fedtide run`, everybody is always there. `rounds` counts all rounds.
    """

    announced: ClassVar[bool] = False
    clients: int = 100  # the most that ever exist
    who: Callable[[int], Ids] | None = None  # the clients that are there when round t begins

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 1, "population.clients", "at least 1", self.clients)

    @property
    def length(self) -> int:
        return self.rounds

    def groups(self, classes: int) -> list[Group]:
        return [Group(self.clients)]

    def at(self, t: int, seed: int = 0) -> Session:
        return Session(0, numbered(0, self.clients), 0, self.rounds)

    def opened(self) -> Population:
        if self.who is None:
            return self
        return Observed(clients=self.clients, rounds=self.rounds, who=self.who)


@dataclass(frozen=True, kw_only=True)
class Observed(Live):
    """The live population of one run: each round is looked at once, when it begins."""

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
            else:  # how long it lasts nobody knows: to the end, as far as schedules are concerned
                number = before.number + 1 if before else 0
                self.log[t] = Session(number, here, t, self.rounds - t)
        return self.log[t]
