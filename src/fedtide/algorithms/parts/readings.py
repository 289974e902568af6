"""Readings of FedAgg: which round's mean-field terms are used in which round.

Definition 1 of the paper takes the terms of the round itself. Read literally, Eqs. 15 and 17 then make the
mean of all clients' rates exactly 0, and with Eq. 14's one step per epoch the only fixed point of Algorithm 1
is that nobody moves. A reading has to be chosen; the paper names two sources of the terms, history (Remark 1)
and pretraining (Algorithm 1).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from fedtide.algorithms.parts.meanfield import Terms
from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.types import Nothing


@dataclass(frozen=True, kw_only=True)
class Reading(ABC):
    """What a round is for; `age` counts rounds, and each reading says from when."""

    @abstractmethod
    def asks(self, age: int) -> bool:
        """Do the clients report their terms in this round?"""

    @abstractmethod
    def moves(self, age: int) -> bool:
        """Does the global model follow the clients in this round?"""

    @abstractmethod
    def learned(
        self, old: Terms | Nothing, new: Terms | Nothing, age: int
    ) -> tuple[Terms | Nothing, int]:
        """The terms of the next round and its age; `new` is what the clients reported, if asked."""


@dataclass(frozen=True, kw_only=True)
class EarlierTerms(Reading):
    """The terms of an earlier round: of the last one, or of the last of `every` so many."""

    every: int = 1

    def __post_init__(self) -> None:
        require(self.every >= 1, "algorithm.reading.every", "at least 1", self.every)

    def asks(self, age: int) -> bool:
        return age % self.every == 0

    def moves(self, age: int) -> bool:
        return True

    def learned(
        self, old: Terms | Nothing, new: Terms | Nothing, age: int
    ) -> tuple[Terms | Nothing, int]:
        return (new if isinstance(new, Terms) else old), age + 1


@dataclass(frozen=True, kw_only=True)
class Pretrain(Reading):
    """Algorithm 1: rounds at the same global model until the terms stand still, then one that trains.

    In a pretraining round clients train and report and the model rests; it costs what any round
    costs. (The paper pretrains all T rounds before the first; their global models are not known then.)
    """

    iterations: int = 10  # J: pretraining rounds at most, for one that trains
    tolerance: float = 1e-3  # epsilon: terms that move less stand still
    damping: float = 0.0  # share of the old terms in the new ones; the paper has none

    def __post_init__(self) -> None:
        where = "algorithm.reading"
        require(self.iterations >= 1, f"{where}.iterations", "at least 1", self.iterations)
        require(self.tolerance >= 0, f"{where}.tolerance", "zero or positive", self.tolerance)
        require(0 <= self.damping < 1, f"{where}.damping", "in [0, 1)", self.damping)

    def asks(self, age: int) -> bool:
        return age < self.iterations

    def moves(self, age: int) -> bool:
        return not self.asks(age)

    def learned(
        self, old: Terms | Nothing, new: Terms | Nothing, age: int
    ) -> tuple[Terms | Nothing, int]:
        if isinstance(new, Nothing):
            return old, 0
        if isinstance(old, Nothing):
            return new, age + 1
        new = Terms(*(torch.lerp(n, o, self.damping) for n, o in zip(new, old, strict=True)))
        still = any(
            (n - o).norm() < self.tolerance for n, o in zip(new, old, strict=True)
        )  # line 3
        return new, self.iterations if still else age + 1


READINGS = Kinds("readings", Reading, {"history": EarlierTerms, "pretrain": Pretrain})
