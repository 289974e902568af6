"""Weighted sums of models (vectors and buffers) and of stacked uploads."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedtide.core.trees import stack, tree_map
from fedtide.core.types import Buffers, Model


def mixed(models: Sequence[Model], weights: Tensor) -> Model:
    """The weighted sum of models."""
    x = torch.zeros_like(models[0].x)
    # One at a time, because stacking them would take the memory of all models at once.
    for model, weight in zip(models, weights.tolist(), strict=True):
        x.add_(model.x, alpha=weight)
    return Model(x, mixed_buffers(stack([model.buffers for model in models]), weights))


def mixed_buffers(stacked: Buffers, weights: Tensor) -> Buffers:
    """The weighted sum of stacked buffers [U, ...]; whole numbers (BatchNorm's counter) are rounded."""
    return {name: _mixed(buffer, weights) for name, buffer in stacked.items()}


def weighted(stacked: Any, weights: Tensor) -> Any:
    """The weighted sum of stacked trees [U, ...]."""
    total = tree_map(lambda leaf: leaf.new_zeros(leaf.shape[1:]), stacked)
    return added(total, stacked, weights)


def added(total: Any, stacked: Any, weights: Tensor) -> Any:
    """Add the weighted sum of stacked trees to `total`, in place.

    The rows are added one by one, so the sum has the same bits whether they come one at a time, in parts or
    all at once.
    """

    def add(sum_: Tensor, leaf: Tensor) -> Tensor:
        for row, weight in zip(leaf, weights.tolist(), strict=True):
            sum_.add_(row, alpha=weight)
        return sum_

    return tree_map(add, total, stacked)


def even(share: Tensor) -> Tensor:
    """The weights of an unweighted mean."""
    return torch.full_like(share, 1 / len(share))


def widest(tensor: Tensor) -> torch.dtype:
    """The widest floating-point type of the tensor's device: float64, or float32 on MPS."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def _mixed(stacked: Tensor, weights: Tensor) -> Tensor:
    wide = widest(stacked)  # where that is float32, counters stay exact up to 2^24
    mean: Tensor = torch.tensordot(weights.to(stacked.device, wide), stacked.to(wide), dims=1)
    return (mean if stacked.is_floating_point() else mean.round()).to(stacked.dtype)
