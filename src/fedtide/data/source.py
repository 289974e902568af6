"""The [data] section of a study: which dataset, scaled how, split how."""

from dataclasses import dataclass, field
from typing import Literal

from fedtide.core.types import Dataset
from fedtide.data.datasets import load, normalised
from fedtide.data.partition import Iid, Partition


@dataclass(frozen=True, kw_only=True)
class Data:
    """`name` is a known dataset or, from Python, a `Dataset` of your own."""

    name: str | Dataset = "digits"
    partition: Partition = field(default_factory=Iid)
    normalise: Literal["unit", "standard", "centred"] = "unit"

    def load(self) -> Dataset:
        """The dataset, whole in memory."""
        dataset = self.name if isinstance(self.name, Dataset) else load(self.name)
        return dataset if self.normalise == "unit" else normalised(dataset, self.normalise)
