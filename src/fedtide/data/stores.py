"""The [data.stores] section: whether and how the examples that clients hold change over the rounds."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.rng import stream, uniforms
from fedtide.data.holdings import Fifo, Holdings, Pace, Static


@dataclass(frozen=True, kw_only=True)
class Stores(ABC):
    """How the examples that clients hold change over the rounds."""

    @abstractmethod
    def holdings(self, given: Static, targets: NDArray[np.int64], seed: int) -> Holdings:
        """The clients' holdings, from the examples `given` to each of them by the partition."""


@dataclass(frozen=True, kw_only=True)
class StaticStores(Stores):
    """Every client always holds the examples that the partition gave it."""

    def holdings(self, given: Static, targets: NDArray[np.int64], seed: int) -> Holdings:
        return given


@dataclass(frozen=True, kw_only=True)
class Arriving(Stores):
    """Examples arrive between rounds, first in, first out (OSAFL, section II-A).

    Client u stores up to D_u examples, drawn from `capacity`; p_u is drawn from `chance`. Between two rounds
    it has E_u = ceil(slots p_u) chances of a new example, each with probability p_u. At the start a share
    `initial` of its store is full. The examples that the partition gave a client arrive in random order; with
    `drift` they arrive label by label, in an order of labels of the client's own (0: no drift; 1: one label
    ends before the next begins). A client's stream ends when all its examples have arrived.
    """

    capacity: tuple[int, ...] = (320, 640)
    slots: int = 32
    chance: tuple[float, ...] = (0.3, 0.8)
    initial: float = 1.0
    drift: float = 0.0

    def __post_init__(self) -> None:
        where = "data.stores"
        for name, least, most in (("capacity", 1, np.inf), ("chance", 0, 1)):
            pair = getattr(self, name)
            fits = len(pair) == 2 and least <= pair[0] <= pair[1] <= most
            top = "" if most == np.inf else f" and at most {most}"
            must = f"[lowest, highest], at least {least}{top}"
            require(fits, f"{where}.{name}", must, list(pair))
        require(self.slots >= 0, f"{where}.slots", "zero or positive", self.slots)
        require(0 <= self.initial <= 1, f"{where}.initial", "a share in [0, 1]", self.initial)
        require(0 <= self.drift <= 1, f"{where}.drift", "in [0, 1]", self.drift)

    def pace(self, clients: int, seed: int) -> Pace:
        """How each client's store fills."""
        draws = uniforms(seed, "store", ids=np.arange(clients), count=2)
        low, high = self.capacity
        capacity = low + (draws[:, 0] * (high - low + 1)).astype(np.int64)
        chance = self.chance[0] + draws[:, 1] * (self.chance[1] - self.chance[0])
        slots = np.ceil(self.slots * chance).astype(np.int64)
        return Pace(capacity, np.floor(self.initial * capacity).astype(np.int64), slots, chance)

    def holdings(self, given: Static, targets: NDArray[np.int64], seed: int) -> Holdings:
        owners = np.repeat(np.arange(given.clients), np.diff(given.offsets))
        luck = stream(seed, "arrival order").random(len(owners))
        labels = targets[given.order]
        must = "0 where targets are not labels: examples arrive label by label"
        require(not self.drift or bool(targets.any()), "data.stores.drift", must, self.drift)
        turns = uniforms(seed, "drift", ids=np.arange(given.clients), count=int(labels.max()) + 1)
        turn = turns.argsort(1).argsort(1) / turns.shape[1]  # the moment of each label's turn
        moment = (1 - self.drift) * luck + self.drift * turn[owners, labels]
        order = given.order[np.lexsort((luck, moment, owners))]
        return Fifo(Static(order, given.offsets), self.pace(given.clients, seed), seed)


STORES = Kinds("stores", Stores, {"static": StaticStores, "fifo": Arriving})
