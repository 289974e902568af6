"""Recognise a `direction` of the form grad + weight * (y - anchor) + shift by calling it with symbols.

FedProx, SCAFFOLD and similar algorithms have this form, with the same numbers in all steps of a round, so
that a compiled kernel can compute whole rounds. Any other operation on a symbol raises TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from fedtide.core.trees import leaves
from fedtide.core.types import Vector

Direction = Callable[..., Any]  # of an algorithm


@dataclass(frozen=True, eq=False)
class Affine:
    """A sum of at most one gradient, one multiple of (y - anchor), and a shift."""

    grads: float = 0.0
    weight: float = 0.0
    anchor: Tensor | None = None  # None: zero
    shift: Tensor | None = None

    def __add__(self, other: Affine | Tensor) -> Affine:
        if isinstance(other, Tensor):
            return replace(self, shift=_sum(self.shift, other))
        if not isinstance(other, Affine) or (self.weight and other.weight):
            return NotImplemented
        pulls = self if self.weight else other
        shift, grads = _sum(self.shift, other.shift), self.grads + other.grads
        return Affine(grads, pulls.weight, pulls.anchor, shift)

    def __radd__(self, other: Tensor) -> Affine:
        return self + other

    def __sub__(self, other: Affine | Tensor) -> Affine:
        if isinstance(other, Tensor) and self.weight and self.anchor is self.shift is None:
            return replace(self, anchor=other / self.weight)
        return self + (-other)

    def __rsub__(self, other: Tensor) -> Affine:
        return -self + other

    def __neg__(self) -> Affine:
        return -1 * self

    def __mul__(self, factor: float) -> Affine:
        if not isinstance(factor, int | float):
            return NotImplemented
        shift = None if self.shift is None else factor * self.shift
        return Affine(factor * self.grads, factor * self.weight, self.anchor, shift)

    __rmul__ = __mul__


class Unknown:
    """The number of a step as a symbol: any use of its value raises TypeError."""

    def _refuse(self, *others: object) -> NoReturn:
        raise TypeError("the number of a step is not known here")

    __bool__ = __int__ = __float__ = __index__ = __hash__ = _refuse
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


def decompose(direction: Direction, down: Any, mine: Any) -> Affine | None:
    """What `direction` adds to a gradient at every step; None if it does anything else."""
    # Any exception means that `direction` is not affine; it will run normally on real tensors.
    try:
        found = direction(Affine(grads=1), Affine(weight=1), Unknown(), down, mine)
    except Exception:
        return None
    return found if isinstance(found, Affine) and found.grads == 1 else None


def matches(added: Affine, x: Vector, mine: Any) -> bool:
    """Is the anchor a vector like x, and the shift one too, or one for each of these clients?"""
    stacked = [leaf.shape[:1] for leaf in leaves(mine)][:1]

    def like(other: Tensor | None, *fronts: torch.Size) -> bool:
        if other is None:
            return True
        return other.dtype == x.dtype and other.shape in [(*front, *x.shape) for front in fronts]

    return like(added.anchor, torch.Size()) and like(added.shift, torch.Size(), *stacked)


def verify(direction: Direction, down: Any, mine: Any, x: Vector) -> bool:
    """Does one client's `direction` agree with its decomposition on real tensors, at several steps?

    It might test the type of the step's number, or draw random numbers.
    """
    before = torch.get_rng_state()
    said = decompose(direction, down, mine)
    if said is None:
        return False
    gradient, y = torch.linspace(-1, 1, len(x)).to(x), torch.linspace(2, -3, len(x)).to(x)
    anchor, shift = (0 if each is None else each for each in (said.anchor, said.shift))
    expected = gradient + said.weight * (y - anchor) + shift
    done = (direction(gradient.clone(), y.clone(), k, down, mine) for k in (0, 1, 5))
    same = all(torch.allclose(each, expected, atol=1e-5, rtol=1e-4) for each in done)
    return same and torch.equal(before, torch.get_rng_state())


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
