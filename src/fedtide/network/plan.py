"""The base of networks: from the work of a round to a plan, what each client can afford and what it costs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtide.core.types import Ids, Nothing, Plan, Work


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """A model of the costs of a round.

    It is given numbers of bytes and steps, never the algorithm, so it cannot favour a method. What changes
    from round to round (time, batteries) is a state: `start` returns the first one, `plan` the next.
    """

    def start(self, clients: int, seed: int) -> Any:
        """The network's state before the first round; `clients` counts also those that come later."""
        return Nothing()

    @abstractmethod
    def plan(self, state: Any, t: int, ids: Ids, work: Work, seed: int) -> tuple[Plan, Any]:
        """The plan of round t for these clients, and the state after it."""


@dataclass(frozen=True, kw_only=True)
class IdealNetwork(Network):
    """Every client makes all its steps at no cost, and every upload arrives."""

    def plan(self, state: Any, t: int, ids: Ids, work: Work, seed: int) -> tuple[Plan, Any]:
        nothing = np.zeros(len(ids))
        return Plan(work.steps, nothing, nothing, work.steps > 0), state
