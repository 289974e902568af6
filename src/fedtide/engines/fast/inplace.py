"""Layers in a row that compute the same numbers, forwards and backwards, with less work and memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# The backward pass of these layers needs only their input, so their output may be overwritten in place.
_MAKERS = (nn.Linear, *_CONVOLUTIONS, *_NORMS, *_POOLS)


def written_in_place(module: nn.Module) -> nn.Module:
    """The module itself, with every Sequential replaced by one that saves work and memory."""
    for part in module.modules():
        if type(part) is nn.Sequential:
            part.__class__ = _InPlace
    return module


class _InPlace(nn.Sequential):
    """Swaps a ReLU and the max pool behind it, and lets ReLUs overwrite the output of the layer before.

    The maximum is the same before and after a ReLU, and the pool leaves fewer numbers to clip.
    """

    def forward(self, input: Any) -> Any:
        if _has_any_global_hook():  # type: ignore[no-untyped-call]  # a global hook sees every layer
            return super().forward(input)  # type: ignore[no-untyped-call]
        for part, over in _reordered(list(self)):
            input = torch.relu_(input) if over else part(input)
        return input


def _reordered(parts: list[nn.Module]) -> Iterator[tuple[nn.Module, bool]]:
    """The layers in the cheaper order, and whether each is a ReLU that may overwrite its input."""
    fresh = False  # was the input just computed, and is it used by this layer only?
    for k in range(len(parts)):
        waits = _is(parts[k], nn.ReLU) and (fresh or not parts[k].inplace)
        if waits and k + 1 < len(parts) and _is_pool(parts[k + 1]):
            parts[k], parts[k + 1] = parts[k + 1], parts[k]
        yield parts[k], fresh and _is(parts[k], nn.ReLU)
        fresh = _is(parts[k], *_MAKERS)


def _is_pool(part: nn.Module) -> bool:
    return _is(part, *_POOLS) and not part.return_indices


def _is(part: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Is it a layer of exactly this kind, without hooks?"""
    hooks = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks
    return type(part) in kinds and not any(hooks) and not part._backward_pre_hooks
