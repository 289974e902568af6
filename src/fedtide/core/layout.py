"""The place of each trained parameter of a model in its flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtide.core.types import Vector


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's trained parameters, in the order in which the flat vector has them."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module's parameters that require gradients; the others are frozen."""
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        return cls(tuple(named), tuple(p.shape for p in named.values()))

    @property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(shape.numel() for shape in self.shapes)

    def pack(self, parameters: Mapping[str, Tensor]) -> Vector:
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def unpack(self, x: Vector) -> dict[str, Tensor]:
        pieces = torch.split(x, [shape.numel() for shape in self.shapes])
        return {n: p.view(s) for n, s, p in zip(self.names, self.shapes, pieces, strict=True)}
