"""Differential privacy of clients: each upload is clipped, and noise is added to their mean.

The accountant is Google's dp-accounting (Renyi differential privacy). What is protected is one client's part
in all rounds together; `epsilon` tells how well, at `delta`, and holds for the models that are published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import ConfigError, needs, require
from fedtide.core.rng import torch_seed
from fedtide.guard.defences import clipped


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The [privacy] section: nothing is clipped and no noise added unless it says so."""

    clip: float = 0.0  # the greatest length of an upload; 0: any
    noise: float = 0.0  # standard deviation of the noise on the sum of the uploads, over `clip`
    delta: float = 1e-5

    def __post_init__(self) -> None:
        require(self.clip >= 0, "privacy.clip", "positive, or 0 for none", self.clip)
        require(self.noise >= 0, "privacy.noise", "zero or positive", self.noise)
        require(0 < self.delta < 1, "privacy.delta", "in (0, 1)", self.delta)
        require(
            not self.noise or self.clip > 0,
            "privacy.clip",
            "positive where there is noise",
            self.clip,
            "Noise hides a client only if its upload has a greatest length.",
        )
        if self.noise:
            needs("privacy.noise", "privacy", "dp_accounting")

    @property
    def is_active(self) -> bool:
        """Is there anything to do?"""
        return self.clip > 0

    def clipped(self, rows: Tensor) -> Tensor:
        """Uploads [U, D] of bounded length."""
        return clipped(rows, self.clip) if self.clip else rows

    def noised(self, mean: Tensor, weights: Tensor, t: int, seed: int) -> Tensor:
        """The mean [D] of a round's uploads with noise."""
        if not self.noise:
            return mean
        if float(weights.max() - weights.min()) > 1e-6 * float(weights.max()):
            raise ConfigError(
                "privacy.noise must go with clients that count the same. Got weights by size, which "
                "change with what a client holds. Set algorithm.weights = 'equal'."
            )
        generator = torch.Generator().manual_seed(torch_seed(seed, "privacy", t))
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return mean + self.noise * self.clip * float(weights.max()) * noise

    def epsilon(self, rounds: Iterable[Mapping[str, Any]], is_uniform: bool) -> float | None:
        """The price of these rounds, lines of the journal; None: nothing is protected.

        Where cohorts were uniform samples of a fixed size, sampling itself protects (two populations are
        neighbours if one client is replaced, so an upload may change the sum by 2 clip). Nothing of the
        kind is claimed where they were not: there the client that took part most often decides (two
        populations are neighbours if one client's uploads are zero).
        """
        if not self.noise:
            return None
        import dp_accounting as dp

        if is_uniform:
            accountant = dp.rdp.RdpAccountant(
                neighboring_relation=dp.NeighboringRelation.REPLACE_ONE
            )
            sizes = Counter((line["population"], line["cohort"]) for line in rounds)
            for (population, cohort), count in sizes.items():
                event = dp.SampledWithoutReplacementDpEvent(
                    population, cohort, dp.GaussianDpEvent(self.noise / 2)
                )
                accountant.compose(event, count)
        else:
            accountant = dp.rdp.RdpAccountant()
            often = Counter(client for line in rounds for client in line["clients"])
            most = max(often.values(), default=0)
            accountant.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(self.noise), most))
        return float(accountant.get_epsilon(self.delta))
