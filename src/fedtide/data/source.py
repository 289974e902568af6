"""The [data] section of a study: the dataset, and what each client holds of it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, isfinite
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, choices, require
from fedtide.core.kinds import settle
from fedtide.core.rng import stream
from fedtide.core.types import Dataset, Group
from fedtide.data.datasets import DATASETS, advice, load, normalised, place
from fedtide.data.groupings import PARTITIONS
from fedtide.data.heldout import Order, held_out
from fedtide.data.holdings import ROUNDING, Holdings, Static, distribute
from fedtide.data.partition import Iid, Partition
from fedtide.data.stores import STORES, StaticStores, Stores

Groups = Callable[[int], Sequence[Group]]  # all clients that ever exist, given the number of labels


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source of examples."""

    @classmethod
    def hint(cls, kind: str) -> str:
        """What to write where a study file names a dataset as a kind; empty for any other word."""
        return f"It is a dataset: write data.name = {kind!r}." if kind in DATASETS else ""

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the data."""

    @property
    @abstractmethod
    def is_here(self) -> bool:
        """Can the data be used without fetching them from a network?"""

    @property
    def advice(self) -> str:
        """What to do if the data are not here."""
        return ""

    @property
    def validates(self) -> bool:
        """Does `deal` take validation examples from the training data?"""
        return False

    def checksum(self) -> str:
        """A checksum of the examples; empty where the settings alone determine them."""
        return ""

    @abstractmethod
    def deal(self, groups: Groups, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        """The dataset, and what each client holds of it in each of `rounds` rounds."""


@dataclass(frozen=True, kw_only=True)
class Split(Source):
    """A dataset that a partition splits over the clients."""

    partition: Partition = field(default_factory=Iid)
    stores: Stores = field(default_factory=StaticStores)
    validation: float = 0.0  # share of the training examples that no client holds
    # Taken from all training examples before they are dealt, or from the examples of each client.
    validation_from: Literal["all", "clients"] = "all"
    test_share: float = 0.0  # share of each client's examples that are its own test examples
    test_order: Order = "random"  # which ones: random ones, or the last in time

    def __post_init__(self) -> None:
        settle(self, "data.partition", "partition", Partition, PARTITIONS)
        settle(self, "data.stores", "stores", Stores, STORES)
        must = "a share of the training examples in [0, 1)"
        require(0 <= self.validation < 1, "data.validation", must, self.validation)
        must = "a share of each client's examples in [0, 1)"
        require(0 <= self.test_share < 1, "data.test_share", must, self.test_share)

    @property
    def validates(self) -> bool:
        return self.validation > 0

    @abstractmethod
    def load(self) -> Dataset:
        """The whole dataset."""

    def deal(self, groups: Groups, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        dataset = self.load()
        given, apart = self.split(dataset, groups(dataset.classes), seed)
        dataset, given = held_out(dataset, given, self.test_share, self.test_order, seed)
        holdings = self.stores.holdings(given, dataset.labels, seed)
        if apart is not None:
            validation = dataset.train.some(torch.from_numpy(apart)).as_tests()
            dataset = replace(dataset, validation=validation)
        return dataset, holdings

    def split(
        self, dataset: Dataset, groups: Sequence[Group], seed: int
    ) -> tuple[Static, NDArray[np.int64] | None]:
        """The examples given to each client, and those set apart for validation, if any."""
        if not self.validation:
            return distribute(dataset, self.partition, groups, seed), None
        if self.validation_from == "clients":
            given = distribute(dataset, self.partition, groups, seed)
            turns = stream(seed, "validation").random(len(given.order))
            given, apart = given.without(self.validation, turns)
        else:
            shuffled = stream(seed, "validation").permutation(len(dataset.train))
            apart = np.sort(shuffled[: int(self.validation * len(shuffled) + ROUNDING)])
            given = distribute(dataset, self.partition, groups, seed, apart)
        must = "large enough for an example" + " of a client" * (self.validation_from != "all")
        require(len(apart) > 0, "data.validation", must, self.validation)
        return given, apart


@dataclass(frozen=True, kw_only=True)
class Data(Split):
    """A dataset split over the clients; `name` is a known one or, from Python, your own `Dataset`."""

    name: str | Dataset = "digits"
    normalise: Literal["unit", "standard", "centred"] = "unit"
    # With "standard": mean and std of each channel, of pixels in [0, 1]; empty: the published ones.
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.name, str) and self.name not in DATASETS:
            known = choices(self.name, DATASETS)
            raise ConfigError(f"data.name: {self.name!r} is not a known dataset. {known}")
        given, where = self.mean or self.std, "data.mean" if self.mean else "data.std"
        fits = not given or self.normalise == "standard"
        require(fits, where, "empty unless data.normalise = 'standard'", list(given))
        for deviation in self.std:
            require(0 < deviation < inf, "data.std", "positive numbers", deviation)
        for value in self.mean:
            require(isfinite(value), "data.mean", "numbers", value)

    @property
    def title(self) -> str:
        return self.name if isinstance(self.name, str) else self.name.name

    @property
    def is_here(self) -> bool:
        name = self.name
        return not isinstance(name, str) or place(name) is not None or not DATASETS[name].files

    @property
    def advice(self) -> str:
        return advice(self.title)

    def load(self) -> Dataset:
        """Load the dataset into memory."""
        dataset = self.name
        if not isinstance(dataset, Dataset):
            dataset = _loaded(dataset, os.environ.get("FEDTIDE_DATA", ""))
        if self.normalise == "unit":
            return dataset
        return normalised(dataset, self.normalise, self.mean, self.std)

    def checksum(self) -> str:
        name = self.name
        if isinstance(name, Dataset):
            return name.checksum()
        if type(self).load is not Data.load:  # a class of a user that loads something else
            return self.load().checksum()
        return _checksum(name, os.environ.get("FEDTIDE_DATA", ""))


@lru_cache(maxsize=2)
def _loaded(name: str, place: str) -> Dataset:
    """Load a dataset once for all runs of a study; `place` is the value of FEDTIDE_DATA."""
    return load(name)


@lru_cache(maxsize=16)
def _checksum(name: str, place: str) -> str:
    return _loaded(name, place).checksum()
