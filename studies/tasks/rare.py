"""Yes or no with few yes: is it this label of a dataset? Most examples of the label are left out."""

from dataclasses import dataclass, replace

import torch

import fedtide
from fedtide.extend import Dataset, Examples


@dataclass(frozen=True, kw_only=True)
class Rare(fedtide.Data):
    """Targets are 1 for `label`, of whose examples a share `keep` stays, else 0."""

    label: int = 0
    keep: float = 0.2

    def load(self) -> Dataset:
        whole = super().load()
        train, test = self.fewer(whole.train), self.fewer(whole.test)
        return replace(whole, train=train, test=test, classes=2, keys=None)

    def fewer(self, examples: Examples) -> Examples:
        """Every (1 / keep)-th example of the label, and all others."""
        yes = examples.targets == self.label
        place = yes.cumsum(0)
        kept = ((place * self.keep).floor() > ((place - 1) * self.keep).floor()) & yes
        some = examples.some(torch.nonzero(kept | ~yes)[:, 0])
        return replace(some, targets=(some.targets == self.label).long())
