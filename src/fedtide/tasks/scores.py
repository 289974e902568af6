"""Test scores: how good a model is, and whether more or less of it is better."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedtide.core.kinds import Kinds


class Sums(NamedTuple):
    """Sums over examples, from which the scores that are means follow."""

    loss: float = 0.0
    right: float = 0.0  # right answers
    weight: float = 0.0  # how much the examples count in the mean of the loss
    examples: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """The sums over both sets of examples."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def mean_loss(self) -> float:
        """The mean loss; not a number where nothing counts."""
        return self.loss / self.weight if self.weight else math.nan

    @property
    def accuracy(self) -> float:
        """The share of right answers; not a number without examples."""
        return self.right / self.examples if self.examples else math.nan


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """A number that says how good a model is on test examples."""

    larger: ClassVar[bool] = True  # is more of it better?

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in journal and report."""

    @abstractmethod
    def of(self, sums: Sums) -> float:
        """The score of these test examples."""


@dataclass(frozen=True, kw_only=True)
class Accuracy(Score):
    """The share of right answers."""

    name = "accuracy"

    def of(self, sums: Sums) -> float:
        return sums.accuracy


@dataclass(frozen=True, kw_only=True)
class MeanLoss(Score):
    """The mean loss; less is better."""

    larger = False
    name = "loss"

    def of(self, sums: Sums) -> float:
        return sums.mean_loss


@dataclass(frozen=True, kw_only=True)
class Perplexity(Score):
    """The exponential of the mean loss of a token; less is better."""

    larger = False
    name = "perplexity"

    def of(self, sums: Sums) -> float:
        return math.exp(min(sums.mean_loss, 700.0))


SCORES = Kinds("scores", Score, {"accuracy": Accuracy, "loss": MeanLoss, "perplexity": Perplexity})
