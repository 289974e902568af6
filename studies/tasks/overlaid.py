"""Several labels at once: up to three pictures laid over each other; which digits are there?"""

from dataclasses import dataclass, replace

import numpy as np
import torch

import fedtide
from fedtide.extend import Dataset, Examples


@dataclass(frozen=True, kw_only=True)
class Overlaid(fedtide.Data):
    """Each picture is the brightest of one to `most` pictures; targets are 0 and 1 for each label."""

    most: int = 3

    def load(self) -> Dataset:
        whole = super().load()
        train, test = (
            self.laid(part, whole.classes, seed)
            for seed, part in enumerate((whole.train, whole.test))
        )
        return replace(whole, train=train, test=test, classes=0, keys=None)

    def laid(self, examples: Examples, labels: int, seed: int) -> Examples:
        """Lay pictures over each of the examples; equal seeds give equal pictures."""
        rng, count = np.random.default_rng(seed), len(examples)
        images, every = examples.inputs, torch.nn.functional.one_hot(examples.targets, labels)
        found, more = every, torch.from_numpy(rng.integers(self.most, size=count))
        for layer in range(self.most - 1):
            other = torch.from_numpy(rng.permutation(count))
            here = more > layer
            found = torch.where(here[:, None], found | every[other], found)
            shape = (-1,) + (1,) * (images.dim() - 1)
            images = torch.where(here.view(shape), torch.maximum(images, images[other]), images)
        return replace(examples, inputs=images, targets=found)
