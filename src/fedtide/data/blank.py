"""Random noise instead of data, for studies of costs, which do not depend on what examples show."""

from dataclasses import dataclass

import numpy as np
import torch

from fedtide.core.errors import require
from fedtide.core.rng import stream
from fedtide.core.types import Dataset, Examples
from fedtide.data.holdings import Holdings, Static
from fedtide.data.source import Groups, Source


@dataclass(frozen=True, kw_only=True)
class Blank(Source):
    """Random noise in the shape of data, for studies of costs.

    Inputs have `shape` (with a `vocabulary` they are tokens below it) and one of `labels` labels. Each client
    holds `examples` of them.
    """

    shape: tuple[int, ...] = (1, 28, 28)
    labels: int = 10
    examples: int = 100
    vocabulary: int = 0

    def __post_init__(self) -> None:
        require(min(self.shape, default=0) >= 1, "data.shape", "sizes of at least 1", self.shape)
        for name in ("labels", "examples"):
            require(getattr(self, name) >= 1, f"data.{name}", "at least 1", getattr(self, name))
        require(self.vocabulary >= 0, "data.vocabulary", "zero or more", self.vocabulary)

    @property
    def title(self) -> str:
        return "blank"

    @property
    def is_here(self) -> bool:
        return True

    def deal(self, groups: Groups, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        kind, below = (np.int64, self.vocabulary) if self.vocabulary else (np.uint8, 256)
        noise = stream(seed, "blank").integers(below, size=(self.labels, *self.shape), dtype=kind)
        examples = Examples(torch.from_numpy(noise), torch.arange(self.labels))
        dataset = Dataset(self.title, examples, examples, self.labels, vocabulary=self.vocabulary)
        stores = [
            np.resize(group.labels or range(self.labels), (group.clients, self.examples))
            for group in groups(self.labels)
        ]
        order = np.concatenate(stores).astype(np.int64)
        return dataset, Static(order.ravel(), np.arange(0, order.size + 1, self.examples))
