"""Client-level differential privacy: each upload is clipped, and noise is added to their mean.

The accountant is Google's dp-accounting (Renyi differential privacy). It protects one client's
participation in all rounds together; `epsilon` at `delta` is the privacy loss of publishing the models.

The sum of the uploads is divided by the number of clients that were drawn, not of those that replied (the
fixed denominator of McMahan et al., ICLR 2018): a client that does not reply counts as zero, and the size
of the noise in the published model does not reveal how many replied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtide.core.errors import ConfigError, needs, require
from fedtide.core.rng import secret_normals, torch_seed
from fedtide.core.types import Buffers
from fedtide.guard.defences import clipped


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The [privacy] section of a study; by default uploads are not clipped and no noise is added."""

    clip: float = 0.0  # the largest norm of an upload; 0: any
    noise: float = (
        0.0  # standard deviation of the noise on the sum of the uploads, divided by `clip`
    )
    delta: float = 1e-5

    def __post_init__(self) -> None:
        require(self.clip >= 0, "privacy.clip", "positive, or 0 for none", self.clip)
        require(self.noise >= 0, "privacy.noise", "zero or positive", self.noise)
        require(0 < self.delta < 1, "privacy.delta", "in (0, 1)", self.delta)
        require(
            not self.noise or self.clip > 0,
            "privacy.clip",
            "positive if privacy.noise is",
            self.clip,
            "Noise hides a client only if the norm of its upload is limited.",
        )
        if self.noise:
            needs("privacy.noise", "privacy", "dp_accounting")

    @property
    def is_active(self) -> bool:
        """Are uploads clipped?"""
        return self.clip > 0

    def clipped(self, rows: Tensor) -> Tensor:
        """The uploads [U, D], clipped to the norm `clip`."""
        return clipped(rows, self.clip) if self.clip else rows

    def check_buffers(self, buffers: Buffers, policy: str) -> None:
        """Raise a `ConfigError` if clients would send the model's buffers without noise."""
        leave = bool(buffers) and policy == "average"
        require(
            not (self.noise and leave),
            "train.buffers",
            "'frozen' or 'local' if privacy adds noise and the model has buffers",
            policy,
            f"The mean of the clients' {next(iter(buffers), '')!r} would be published without noise.",
        )

    def noised(
        self, total: Tensor, weights: Tensor, drawn: int, t: int, seed: int | None
    ) -> Tensor:
        """Add noise to the weighted sum [D] of a round's uploads; `drawn` is the size of the cohort.

        The noise is drawn from the seed or, without a seed, from the operating system.
        """
        if float(weights.max() - weights.min()) > 1e-6 * float(weights.max()):
            raise ConfigError(
                "privacy.noise must be used with equal weights for all clients. Got weights by the number of "
                "examples, which depend on a client's data. Set algorithm.weights = 'equal'."
            )
        if seed is None:
            noise = torch.from_numpy(secret_normals(total.numel())).view(total.shape).to(total)
        else:
            generator = torch.Generator().manual_seed(torch_seed(seed, "privacy", t))
            noise = torch.randn(total.shape, generator=generator, dtype=total.dtype).to(total)
        noisy = total + self.noise * self.clip * float(weights.max()) * noise
        return noisy * (len(weights) / drawn)

    def epsilon(self, rounds: Sequence[Mapping[str, Any]], is_uniform: bool) -> float | None:
        """The privacy loss epsilon of these rounds, lines of the journal; None without noise.

        Two populations are neighbours if one client is replaced by another that is drawn in the same
        rounds, so replacing an upload may change the sum by 2 clip. If every cohort is a uniform sample of
        a fixed size and all its clients replied, amplification by sampling is counted. Otherwise it is not:
        then the client that was drawn most often determines epsilon, also by rounds to which it did not
        reply.
        """
        if not self.noise:
            return None
        import dp_accounting as dp

        accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
        mechanism = dp.GaussianDpEvent(self.noise / 2)
        if is_uniform and not any("missing" in line for line in rounds):
            sizes = Counter((line["population"], line["cohort"]) for line in rounds)
            for (population, cohort), count in sizes.items():
                if cohort:
                    event = dp.SampledWithoutReplacementDpEvent(population, cohort, mechanism)
                    accountant.compose(event, count)
        else:
            often = Counter(client for line in rounds for client in drawn(line))
            if often:
                accountant.compose(mechanism, max(often.values()))
        return float(accountant.get_epsilon(self.delta))


def drawn(line: Mapping[str, Any]) -> list[int]:
    """The clients that were drawn for a round, whether they replied or not."""
    return [*line["clients"], *line.get("missing", ())]
