"""The [data] section of a study: which dataset, scaled how, split how."""

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from fedtide.core.errors import ConfigError, choices
from fedtide.core.types import Dataset
from fedtide.data.datasets import DATASETS, load, normalised
from fedtide.data.partition import Iid, Partition


@dataclass(frozen=True, kw_only=True)
class Data:
    """`name` is a known dataset or, from Python, a `Dataset` of your own."""

    name: str | Dataset = "digits"
    partition: Partition = field(default_factory=Iid)
    normalise: Literal["unit", "standard", "centred"] = "unit"

    def __post_init__(self) -> None:
        if isinstance(self.name, str) and self.name not in DATASETS:
            known = choices(self.name, DATASETS)
            raise ConfigError(f"data.name: {self.name!r} is not a known dataset. {known}")

    def load(self) -> Dataset:
        """The dataset, whole in memory."""
        dataset = self.name
        if not isinstance(dataset, Dataset):
            dataset = _loaded(dataset, os.environ.get("FEDTIDE_DATA", ""))
        return dataset if self.normalise == "unit" else normalised(dataset, self.normalise)


@lru_cache(maxsize=2)
def _loaded(name: str, place: str) -> Dataset:
    """The runs of a study share their dataset; `place` is where FEDTIDE_DATA pointed."""
    return load(name)
