"""Attacks of hostile clients, to test defences with."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.rng import stream, torch_seed
from fedtide.core.types import Ids


@dataclass(frozen=True, kw_only=True)
class Attack:
    """No client is hostile; also the base class of the other kinds."""

    share: float = 0.0  # the share of all clients that ever exist that is hostile, drawn once

    def __post_init__(self) -> None:
        require(0 <= self.share < 1, "attack.share", "a share in [0, 1)", self.share)

    def members(self, clients: int, seed: int) -> Ids:
        """The ids of the hostile clients."""
        count = round(self.share * clients)
        return np.sort(stream(seed, "hostile").choice(clients, count, replace=False))

    def targets(self, targets: Tensor, classes: int) -> Tensor:
        """The labels that a hostile client trains on, from its true labels."""
        return targets

    def rows(self, rows: Tensor, hostile: Tensor, t: int, seed: int) -> Tensor:
        """The uploads [U, D] of a round after the attack, which changes those of `hostile` [U] clients."""
        return rows

    def losses(
        self, losses: NDArray[np.float64], hostile: NDArray[np.bool_], t: int
    ) -> NDArray[np.float64]:
        """The losses [m, U] that clients report of m models; an attack changes those of `hostile` [U]."""
        return losses


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Hostile clients send the negative of their update, times `scale`."""

    share: float = 0.2
    scale: float = 1.0

    def rows(self, rows: Tensor, hostile: Tensor, t: int, seed: int) -> Tensor:
        return torch.where(hostile[:, None], -self.scale * rows, rows)

    def losses(
        self, losses: NDArray[np.float64], hostile: NDArray[np.bool_], t: int
    ) -> NDArray[np.float64]:
        """Hostile clients report the losses in reverse order: their best model as their worst."""
        return np.where(hostile, losses.max(0) + losses.min(0) - losses, losses)


@dataclass(frozen=True, kw_only=True)
class Noise(Attack):
    """Hostile clients send Gaussian noise whose norm is `scale` times the mean norm of the updates."""

    share: float = 0.2
    scale: float = 10.0

    def rows(self, rows: Tensor, hostile: Tensor, t: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(torch_seed(seed, "attack", t))
        noise = torch.randn(rows.shape, generator=generator, dtype=rows.dtype).to(rows.device)
        noise *= self.scale * rows.norm(dim=1).mean() / noise.norm(dim=1, keepdim=True)
        return torch.where(hostile[:, None], noise, rows)


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Hostile clients train on wrong labels: label c becomes classes - 1 - c."""

    share: float = 0.2

    def targets(self, targets: Tensor, classes: int) -> Tensor:
        return classes - 1 - targets


@dataclass(frozen=True, kw_only=True)
class Alie(Attack):
    """A Little Is Enough (Baruch, Baruch and Goldberg, NeurIPS 2019, Algorithm 3).

    Hostile clients know all updates and send mean - z std, coordinate by coordinate, with the largest z for
    which a majority of the updates still lies on their side; `z = 0` computes it from the numbers of clients.
    """

    share: float = 0.2
    z: float = 0.0

    def rows(self, rows: Tensor, hostile: Tensor, t: int, seed: int) -> Tensor:
        n, m = len(rows), int(hostile.sum())
        if not m or n - m < 2:
            return rows
        honest = rows[~hostile]
        sent = honest.mean(0) - (self.z or largest_z(n, m)) * honest.std(0)
        return torch.where(hostile[:, None], sent, rows)


def largest_z(n: int, m: int) -> float:
    """z_max of ALIE: s = floor(n / 2 + 1) - m of the n - m honest clients are needed for a majority."""
    s = n // 2 + 1 - m
    share = (n - m - s) / (n - m)
    return NormalDist().inv_cdf(min(max(share, 1e-3), 1 - 1e-3))


ATTACKS = Kinds(
    "attacks",
    Attack,
    {
        "none": Attack,
        "sign-flip": SignFlip,
        "noise": Noise,
        "label-flip": LabelFlip,
        "alie": Alie,
    },
)
