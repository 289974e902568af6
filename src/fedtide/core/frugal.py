"""Rows of layers that compute the same numbers, forwards and backwards, with less work and memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import nn

_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# What these make is theirs no more: backwards they need only what they were given.
_MAKERS = (nn.Linear, *_CONVOLUTIONS, *_NORMS, *_POOLS)


def frugal(module: nn.Module) -> nn.Module:
    """The same module, changed where a Sequential can be had for less."""
    for part in module.modules():
        if type(part) is nn.Sequential:
            part.__class__ = _Frugal
    return module


class _Frugal(nn.Sequential):
    """A ReLU lets the pool behind it go first, and writes over what was just made for it.

    The largest of some numbers is the same one before and after a ReLU, and there are fewer afterwards.
    """

    def forward(self, inputs: Any) -> Any:
        fresh = False  # was this just made, and has nobody else seen it?
        for part in _pools_first(list(self)):
            over = fresh and _is(part, nn.ReLU)
            inputs = torch.relu_(inputs) if over else part(inputs)
            fresh = _is(part, *_MAKERS)
        return inputs


def _pools_first(parts: list[nn.Module]) -> Iterator[nn.Module]:
    """In the order that is cheaper."""
    swapped = parts.copy()
    for k, (one, then) in enumerate(pairwise(parts)):
        if _is(one, nn.ReLU) and _is(then, *_POOLS) and not then.return_indices:
            swapped[k], swapped[k + 1] = then, one
    return iter(swapped)


def _is(part: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Is it just that, with nobody who listens?"""
    hooks = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks
    return type(part) in kinds and not any(hooks) and not part._backward_pre_hooks
