"""Partitions by something else than labels: values of the target, similar inputs, time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds, settle
from fedtide.core.types import Dataset
from fedtide.data.mixtures import Floats, Ints, Rng
from fedtide.data.partition import (
    BY_LABEL,
    Dirichlet,
    Keys,
    Partition,
    Sorted,
)

FITTED = 10_000  # examples, at most, from which the centres of clusters are computed
PASSES = 50  # of k-means, at most
BLOCK = 4096  # examples compared with all centres at once


@dataclass(frozen=True, kw_only=True)
class Grouped(Partition):
    """Forms groups of examples, which the partition `of` then splits as if they were labels."""

    needs_labels = False

    of: Partition = field(default_factory=Dirichlet)

    def __post_init__(self) -> None:
        settle(self, "data.partition.of", "of", Partition, PARTITIONS)

    @abstractmethod
    def labels(self, dataset: Dataset, rng: Rng) -> Ints:
        """[N]: the group of each training example."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        return self.of.owners(targets, clients, rng, keys)


@dataclass(frozen=True, kw_only=True)
class Quantiles(Grouped):
    """Groups of equal sizes by the value of the target, so that clients differ in what they predict.

    Of a target with several numbers, the one at place `column` is taken.
    """

    bins: int = 10
    column: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.bins >= 2, "data.partition.bins", "at least 2", self.bins)
        require(self.column >= 0, "data.partition.column", "zero or more", self.column)

    def labels(self, dataset: Dataset, rng: Rng) -> Ints:
        targets = dataset.train.targets.cpu().numpy().reshape(len(dataset.train), -1)
        must = f"a place among the {targets.shape[1]} numbers of a target, from 0"
        require(self.column < targets.shape[1], "data.partition.column", must, self.column)
        values = targets[:, self.column]
        # Equal values stay together: they belong to the group of the first of them.
        first = np.searchsorted(np.sort(values), values)
        return first * self.bins // len(values)


@dataclass(frozen=True, kw_only=True)
class Clusters(Grouped):
    """Groups of similar inputs, found by k-means on standardised inputs (k-means++, Arthur 2007)."""

    clusters: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clusters >= 2, "data.partition.clusters", "at least 2", self.clusters)

    def labels(self, dataset: Dataset, rng: Rng) -> Ints:
        train = dataset.train
        require(
            train.tensor is not None,
            "data.partition",
            f"one that does not look at inputs, as those of {dataset.name!r} are not one tensor in memory",
            "clusters",
        )
        must = f"at most {len(train)}, the number of training examples"
        require(self.clusters <= len(train), "data.partition.clusters", must, self.clusters)
        some = np.sort(rng.permutation(len(train))[:FITTED])
        points = _flat(dataset, some)
        mean, std = points.mean(0), points.std(0)
        std[std == 0] = 1
        centres = _centres((points - mean) / std, self.clusters, rng)
        blocks = (
            _nearest((_flat(dataset, block) - mean) / std, centres)[0]
            for block in _blocks(len(train))
        )
        return np.concatenate(list(blocks))


@dataclass(frozen=True, kw_only=True)
class ByTime(Sorted):
    """Cut along time into one equal piece per client: client numbers follow the time of recording.

    Where a dataset does not say when its examples were recorded, they are taken in its order.
    """

    needs_labels = False

    def labels(self, dataset: Dataset, rng: Rng) -> Ints:
        return np.arange(len(dataset.train)) if dataset.times is None else dataset.times


def _blocks(count: int) -> Iterator[Ints]:
    yield from np.array_split(np.arange(count), -(-count // BLOCK))


def _flat(dataset: Dataset, index: Ints) -> Floats:
    """These inputs as rows of numbers."""
    taken = dataset.train.inputs_at(torch.from_numpy(index))
    assert isinstance(taken, torch.Tensor)
    points: Floats = taken.flatten(1).double().cpu().numpy()
    return points


def _nearest(points: Floats, centres: Floats) -> tuple[Ints, Floats]:
    """The nearest centre of each point, and its squared distance."""
    apart = (points**2).sum(1)[:, None] - 2 * points @ centres.T + (centres**2).sum(1)
    nearest = apart.argmin(1)
    return nearest, apart[np.arange(len(points)), nearest].clip(min=0)


def _centres(points: Floats, count: int, rng: Rng) -> Floats:
    """Centres of clusters by k-means; each begins far from those before it."""
    centres: Floats = points[rng.integers(len(points))][None]
    while len(centres) < count:
        _, apart = _nearest(points, centres)
        chances = np.cumsum(apart) if apart.any() else np.arange(1.0, len(points) + 1)
        new = np.searchsorted(chances, rng.random() * chances[-1], side="right")
        centres = np.concatenate([centres, points[new][None]])
    before: NDArray[np.int64] | None = None
    for _ in range(PASSES):
        nearest, _ = _nearest(points, centres)
        if before is not None and (nearest == before).all():
            break
        before = nearest
        sizes = np.bincount(nearest, minlength=count)[:, None]
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        centres = np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)
    return centres


PARTITIONS = Kinds(
    "partitions",
    Partition,
    {**BY_LABEL, "quantiles": Quantiles, "clusters": Clusters, "time": ByTime},
)
