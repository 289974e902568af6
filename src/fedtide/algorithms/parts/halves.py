"""Models in two halves, a body and a head, for algorithms that treat them differently."""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedtide.core.errors import ConfigError
from fedtide.core.layout import Layout
from fedtide.core.types import Vector


class Halves(NamedTuple):
    """The two parts of a model's vector."""

    body: Vector
    head: Vector

    @property
    def x(self) -> Vector:
        """The model's parameter vector: body and head joined."""
        return torch.cat([self.body, self.head])


def is_head(name: str) -> bool:
    """Does the parameter belong to the head?"""
    return name.startswith("head.")


def halved(x: Vector, layout: Layout, who: str) -> Halves:
    """The halves of x: the head is what the model calls `head`, the last of its parts."""
    marks = [is_head(name) for name in layout.names]
    if all(marks) or not any(marks) or marks != sorted(marks):
        raise ConfigError(
            f"train.model must have a body and, after it, a part called 'head' for {who}. "
            f"Got parameters {', '.join(layout.names)}. Choose another model, for example mlp."
        )
    sizes = [shape.numel() for shape, mark in zip(layout.shapes, marks, strict=True) if not mark]
    return Halves(x[: sum(sizes)], x[sum(sizes) :])
