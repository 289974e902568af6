"""Learning rates over the rounds since the last start; every start begins the schedule anew."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """A factor for the learning rate."""

    @abstractmethod
    def factor(self, t: int, rounds: int) -> float:
        """The factor in round t = 0 .. rounds - 1 since the last start."""


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate in every round."""

    def factor(self, t: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """Multiplied by `gamma` every `every` rounds."""

    every: int = 1
    gamma: float = 0.998

    def __post_init__(self) -> None:
        require(self.every >= 1, "train.schedule.every", "at least 1", self.every)
        require(self.gamma > 0, "train.schedule.gamma", "positive", self.gamma)

    def factor(self, t: int, rounds: int) -> float:
        return float(self.gamma ** (t // self.every))


@dataclass(frozen=True, kw_only=True)
class Poly(Schedule):
    """Falls from 1 towards `floor` as (1 - t / rounds)^power."""

    floor: float = 0.0
    power: float = 0.9

    def __post_init__(self) -> None:
        require(0 <= self.floor <= 1, "train.schedule.floor", "in [0, 1]", self.floor)
        require(self.power > 0, "train.schedule.power", "positive", self.power)

    def factor(self, t: int, rounds: int) -> float:
        return (1 - self.floor) * float((1 - t / rounds) ** self.power) + self.floor


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Falls from 1 towards `floor` along half a cosine."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.floor <= 1, "train.schedule.floor", "in [0, 1]", self.floor)

    def factor(self, t: int, rounds: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * t / rounds)) / 2


SCHEDULES = Kinds(
    "schedules",
    Schedule,
    {
        "constant": Constant,
        "step": Step,
        "poly": Poly,
        "cosine": Cosine,
    },
)
