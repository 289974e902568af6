"""Robust aggregation: rules that combine the uploads of a round when some clients may be hostile.

A rule replaces the weighted mean in every algorithm whose server needs only that mean. An upload is a row
[D] of all numbers that a client sends, so a rule that selects clients selects whole uploads. Norms and
distances are computed in float64 (float32 on MPS), because in float32 the norm of a hostile 1e20 is
infinite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.mix import weighted, widest


@dataclass(frozen=True, kw_only=True)
class Defence(ABC):
    """From uploads [U, D] and their weights [U], which add up to 1, to one row [D]."""

    @property
    def counts(self) -> bool:
        """Does it depend on the size of the cohort whether this rule can defend it?"""
        return False

    def problem(self, cohort: int) -> str:
        """The reason why this rule cannot defend a cohort of this size; empty if it can."""
        return ""

    @abstractmethod
    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        """The row [D] that the server uses as the mean."""


@dataclass(frozen=True, kw_only=True)
class PlainMean(Defence):
    """The weighted mean: no defence."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        mean: Tensor = weighted(rows, weights)
        return mean


@dataclass(frozen=True, kw_only=True)
class _Against(Defence):
    share: float = 0.2  # the share of a cohort that may be hostile

    def __post_init__(self) -> None:
        require(0 <= self.share < 0.5, "defence.share", "a share in [0, 0.5)", self.share)

    @property
    def counts(self) -> bool:
        return True

    def problem(self, cohort: int) -> str:
        if self.count(cohort):
            return ""
        return f"a share of {self.share:g} of {cohort} clients is less than one hostile client"

    def count(self, cohort: int) -> int:
        """The number of clients of a cohort that may be hostile."""
        return int(self.share * cohort + 1e-9)


@dataclass(frozen=True, kw_only=True)
class Median(Defence):
    """The median of each coordinate, unweighted (Yin et al., ICML 2018, Option I)."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        ordered = rows.sort(0).values
        return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(_Against):
    """The mean of each coordinate without its `share` largest and smallest values (Yin et al., Option II)."""

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        cut = self.count(len(rows))
        return rows.sort(0).values[cut : len(rows) - cut].mean(0)


@dataclass(frozen=True, kw_only=True)
class Krum(_Against):
    """Use the one upload with the smallest sum of squared distances to its nearest other uploads.

    Blanchard et al., NeurIPS 2017, Proposition 1.
    """

    def problem(self, cohort: int) -> str:
        f = self.count(cohort)
        if cohort >= 2 * f + 3:
            return super().problem(cohort)
        return f"against {f} hostile clients Krum needs at least {2 * f + 3}, there are {cohort}"

    def chosen(self, rows: Tensor) -> int:
        """The number of uploads that are averaged."""
        return 1

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        wide = rows.to(widest(rows))
        apart = _apart(wide, wide).square()
        near = max(1, len(rows) - self.count(len(rows)) - 2)  # neighbours that count in a score
        score = apart.sort(1).values[:, 1 : near + 1].sum(1)
        best = score.argsort(stable=True)[: self.chosen(rows)].sort().values
        return rows[best].mean(0)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The mean of the uploads with Krum's best scores, as many as may be honest."""

    def chosen(self, rows: Tensor) -> int:
        return max(1, len(rows) - self.count(len(rows)))


@dataclass(frozen=True, kw_only=True)
class Clipped(Defence):
    """The weighted mean of uploads clipped to the norm `norm`; 0: to the median norm of the round."""

    norm: float = 0.0

    def __post_init__(self) -> None:
        require(self.norm >= 0, "defence.norm", "positive, or 0 for the median norm", self.norm)

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        most = self.norm or float(lengths(rows).median())
        return weights @ clipped(rows, most)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Defence):
    """The point with the least weighted sum of distances to all uploads, by smoothed Weiszfeld steps.

    RFA (Pillutla, Kakade and Harchaoui, IEEE TSP 2022, Algorithm 2), with its smoothing. Three things
    differ, because a few steps from the mean do not undo very large uploads: the steps begin at the median
    of each coordinate, are computed in float64 (on MPS, which has none, in float32), and stop when one
    moves the point by less than `tolerance` times the median distance of the uploads, or after `steps` of
    them.
    """

    steps: int = 1000
    smoothing: float = 1e-6
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        require(self.steps >= 1, "defence.steps", "at least 1", self.steps)
        require(self.smoothing > 0, "defence.smoothing", "positive", self.smoothing)
        require(self.tolerance >= 0, "defence.tolerance", "zero or positive", self.tolerance)

    def combined(self, rows: Tensor, weights: Tensor) -> Tensor:
        wide, weights = rows.to(widest(rows)), weights.to(widest(rows))
        centre = Median().combined(rows, weights).to(wide)
        for _ in range(self.steps):
            far = _apart(wide, centre[None])[:, 0].clamp(min=self.smoothing)
            pull = weights / far
            before, centre = centre, (pull / pull.sum()) @ wide
            if float((centre - before).norm()) <= self.tolerance * float(far.median()):
                break
        return centre.to(rows)


def lengths(rows: Tensor) -> Tensor:
    """The norm of each row [U], finite for all finite rows."""
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=widest(rows))
    return found


def clipped(rows: Tensor, most: float) -> Tensor:
    """The rows scaled down to the norm `most`; rows below it stay as they are, bit for bit."""
    norms, wide = lengths(rows), widest(rows)
    cut = rows.clone()
    for place in (norms > most).nonzero()[:, 0].tolist():  # one at a time, to save memory
        cut[place] = (rows[place].to(wide) * (most / norms[place])).to(rows)
    return cut


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """The distances of all rows of `one` to all rows of `other`."""
    return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")


DEFENCES = Kinds(
    "defences",
    Defence,
    {
        "mean": PlainMean,
        "median": Median,
        "trimmed-mean": TrimmedMean,
        "krum": Krum,
        "multi-krum": MultiKrum,
        "clipping": Clipped,
        "geometric-median": GeometricMedian,
    },
)
