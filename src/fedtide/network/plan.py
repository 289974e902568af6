"""A network turns the work of a round into a plan: what each client can afford, and what it costs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedtide.core.types import Ids, Plan, Work


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """It sees bytes and steps as numbers, never an algorithm, so no cost model can favour a method."""

    @abstractmethod
    def plan(self, t: int, ids: Ids, work: Work, seed: int) -> Plan:
        """The plan of round t for these clients."""


@dataclass(frozen=True, kw_only=True)
class IdealNetwork(Network):
    """Everybody can do everything, at no cost, and every upload arrives."""

    def plan(self, t: int, ids: Ids, work: Work, seed: int) -> Plan:
        nothing = np.zeros(len(ids))
        return Plan(work.steps, nothing, nothing, work.steps > 0)


NETWORKS: dict[str, type[Network]] = {"ideal": IdealNetwork}
