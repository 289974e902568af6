"""A network turns the work of a round into a plan: what each client can afford, and what it costs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.types import Ids, Nothing, Plan, Work


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """It sees bytes and steps as numbers, never an algorithm, so no cost model can favour a method.

    What changes from round to round (time, batteries) is a value that is passed and returned.
    """

    def start(self, clients: int, seed: int) -> Any:
        """The state before the first round, of all clients that ever exist."""
        return Nothing()

    @abstractmethod
    def plan(self, state: Any, t: int, ids: Ids, work: Work, seed: int) -> tuple[Plan, Any]:
        """The plan of round t for these clients, and the state after it."""


@dataclass(frozen=True, kw_only=True)
class IdealNetwork(Network):
    """Everybody can do everything, at no cost, and every upload arrives."""

    def plan(self, state: Any, t: int, ids: Ids, work: Work, seed: int) -> tuple[Plan, Any]:
        nothing = np.zeros(len(ids))
        return Plan(work.steps, nothing, nothing, work.steps > 0), state
