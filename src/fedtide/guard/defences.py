"""Robust aggregation: how the uploads of a round become one when some clients may be hostile.

Each takes the place of the weighted mean in every algorithm that needs no more than that mean. An upload is a
row [D] with everything a client sends, so a rule that judges clients judges them as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.mix import weighted


@dataclass(frozen=True, kw_only=True)
class Defence(ABC):
    """From uploads [U, D] and their weights [U], which add up to 1, to one row [D]."""

    @abstractmethod
    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """What the server takes for the mean."""


@dataclass(frozen=True, kw_only=True)
class Mean(Defence):
    """The weighted mean: no defence."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        mean: Tensor = weighted(rows, weights)
        return mean


@dataclass(frozen=True, kw_only=True)
class _Against(Defence):
    share: float = 0.2  # of a cohort that may be hostile

    def __post_init__(self) -> None:
        require(0 <= self.share < 0.5, "defence.share", "a share in [0, 0.5)", self.share)

    def count(self, rows: Tensor) -> int:
        """How many of these may be hostile."""
        return int(self.share * len(rows) + 1e-9)


@dataclass(frozen=True, kw_only=True)
class Median(Defence):
    """The median of each coordinate, unweighted (Yin et al., ICML 2018, Option I)."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        ordered = rows.sort(0).values
        return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(_Against):
    """The mean of each coordinate without its `share` largest and smallest (Yin et al., Option II)."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        cut = self.count(rows)
        return rows.sort(0).values[cut : len(rows) - cut].mean(0)


@dataclass(frozen=True, kw_only=True)
class Krum(_Against):
    """The one upload with the nearest neighbours (Blanchard et al., NeurIPS 2017)."""

    def chosen(self, rows: Tensor) -> int:
        """How many uploads are averaged."""
        return 1

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
        near = max(1, len(rows) - self.count(rows) - 2)  # neighbours that count, itself aside
        score = apart.sort(1).values[:, 1 : near + 1].sum(1)
        best = score.argsort(stable=True)[: self.chosen(rows)].sort().values
        return rows[best].mean(0)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The mean of the uploads that Krum likes best, as many as may be honest."""

    def chosen(self, rows: Tensor) -> int:
        return max(1, len(rows) - self.count(rows))


@dataclass(frozen=True, kw_only=True)
class Clipped(Defence):
    """The weighted mean of uploads cut to the length `norm`; 0: to the round's median length."""

    norm: float = 0.0

    def __post_init__(self) -> None:
        require(self.norm >= 0, "defence.norm", "positive, or 0 for the median length", self.norm)

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        most = self.norm or float(rows.norm(dim=1).median())
        return weights @ clipped(rows, most)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Defence):
    """The point with the least weighted distance to all uploads, by smoothed Weiszfeld steps.

    RFA (Pillutla, Kakade and Harchaoui, IEEE TSP 2022, Algorithm 2).
    """

    steps: int = 8
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        require(self.steps >= 1, "defence.steps", "at least 1", self.steps)
        require(self.smoothing > 0, "defence.smoothing", "positive", self.smoothing)

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        centre = weights @ rows
        for _ in range(self.steps):
            pull = weights / (rows - centre).norm(dim=1).clamp(min=self.smoothing)
            centre = pull @ rows / pull.sum()
        return centre


def clipped(rows: Tensor, most: float) -> Tensor:
    """Rows no longer than `most`; shorter ones stay as they are, bit for bit."""
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > most, rows * (most / norms), rows)


DEFENCES: dict[str, type[Defence]] = {
    "mean": Mean,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "clipping": Clipped,
    "geometric-median": GeometricMedian,
}
