"""What an algorithm adds to a gradient, if that is all its `direction` does: it is asked with stand-ins.

FedProx, SCAFFOLD and their kin follow grad + weight * (y - anchor) + shift, with the same numbers all round,
so that whole rounds can be computed elsewhere. Whatever else is done to a stand-in raises TypeError.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

from torch import Tensor


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
    """A number that nobody may look at."""

    def _refuse(self, *others: object) -> NoReturn:
        raise TypeError("the number of a step is not known here")

    __bool__ = __int__ = __float__ = __index__ = __hash__ = _refuse
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


def taken_apart(direction: Any, down: Any, mine: Any) -> Affine | None:
    """What `direction` adds to a gradient at every step; None if it does anything else."""
    try:
        found = direction(Affine(grads=1), Affine(weight=1), Unknown(), down, mine)
    except (
        Exception
    ):  # of whatever kind: it was asked with stand-ins, and will be asked again with numbers
        return None
    return found if isinstance(found, Affine) and found.grads == 1 else None


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
