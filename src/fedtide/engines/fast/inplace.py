"""Layers in a row that compute the same numbers, forwards and backwards, with less work and memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

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

    def forward(self, input: Any) -> Any:
        if _has_any_global_hook():  # type: ignore[no-untyped-call]  # somebody listens everywhere
            return super().forward(input)  # type: ignore[no-untyped-call]
        for part, over in _cheaper(list(self)):
            input = torch.relu_(input) if over else part(input)
        return input


def _cheaper(parts: list[nn.Module]) -> Iterator[tuple[nn.Module, bool]]:
    """The parts in the order that is cheaper, and whether each is a ReLU that may write over its input."""
    fresh = False  # was the input just made, and has nobody else seen it?
    for k in range(len(parts)):
        waits = _is(parts[k], nn.ReLU) and (fresh or not parts[k].inplace)
        if waits and k + 1 < len(parts) and _is_pool(parts[k + 1]):
            parts[k], parts[k + 1] = parts[k + 1], parts[k]
        yield parts[k], fresh and _is(parts[k], nn.ReLU)
        fresh = _is(parts[k], *_MAKERS)


def _is_pool(part: nn.Module) -> bool:
    return _is(part, *_POOLS) and not part.return_indices


def _is(part: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Is it just that, with nobody who listens?"""
    hooks = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks
    return type(part) in kinds and not any(hooks) and not part._backward_pre_hooks
