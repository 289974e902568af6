"""Directions that only add to a gradient are recognised, and nothing else is taken for one."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedtide.algorithms import ALGORITHMS
from fedtide.engines.fast.affine import Affine, decompose, matches, verify


class Known(NamedTuple):
    """What a server sends, or a client remembers."""

    x: Tensor
    c: Tensor


X, C, MINE = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]), torch.tensor([0.5, 0.25])
DOWN, OWN = Known(X, C), Known(X, MINE)
ADDED = {
    "nothing": lambda g, y, k, down, mine: g,
    "a pull": lambda g, y, k, down, mine: g + 0.3 * (y - down.x),
    "a pull, written otherwise": lambda g, y, k, down, mine: (y - down.x) * 0.3 + g,
    "a push": lambda g, y, k, down, mine: g - 0.3 * (y - down.x),
    "from the other side": lambda g, y, k, down, mine: g - (down.x - y),
    "a shift": lambda g, y, k, down, mine: g - mine.c + down.c,
    "a shift first": lambda g, y, k, down, mine: down.c - mine.c + g,
    "a pull and a shift": lambda g, y, k, down, mine: g - mine.c + 0.1 * (y - down.x),
    "decay": lambda g, y, k, down, mine: g + 0.01 * y,
    "shifted, then scaled": lambda g, y, k, down, mine: g + 2 * (y - down.x - mine.c),
}
OTHER = {
    "scaled": lambda g, y, k, down, mine: 0.5 * g,
    "scaled by numbers": lambda g, y, k, down, mine: down.c * g,
    "no gradient": lambda g, y, k, down, mine: y - down.x,
    "two pulls": lambda g, y, k, down, mine: g + (y - down.x) + (y - mine.x),
    "normalised": lambda g, y, k, down, mine: g / g.norm(),
    "signs": lambda g, y, k, down, mine: torch.sign(g),
    "parts": lambda g, y, k, down, mine: torch.cat([g[:1], torch.zeros(1)]),
    "its length": lambda g, y, k, down, mine: g / len(g),
    "the first step": lambda g, y, k, down, mine: g if k == 0 else g + down.c,
    "some steps": lambda g, y, k, down, mine: g if k in (0, 1) else g + down.c,
    "all but the first": lambda g, y, k, down, mine: g + down.c if k else g,
    "by the step": lambda g, y, k, down, mine: g + down.c / (k + 1),
    "a step's entry": lambda g, y, k, down, mine: g + down.c[k],
}


@pytest.mark.parametrize("kind", ADDED)
def test_what_is_added_is_what_the_direction_adds(kind):
    found = decompose(ADDED[kind], DOWN, OWN)
    gradient, y = torch.tensor([0.1, -0.7]), torch.tensor([4.0, -2.0])
    anchor, shift = (0 if each is None else each for each in (found.anchor, found.shift))
    mine = gradient + found.weight * (y - anchor) + shift
    torch.testing.assert_close(mine, ADDED[kind](gradient, y, 7, DOWN, OWN))


def test_a_pull_keeps_its_difference():
    """mu * y - mu * x would lose digits where y is close to x."""
    found = decompose(ADDED["a pull"], DOWN, OWN)
    assert found.shift is None
    assert torch.equal(found.anchor, X)


@pytest.mark.parametrize("kind", OTHER)
def test_whatever_else_a_direction_does_is_left_to_it(kind):
    assert decompose(OTHER[kind], DOWN, OWN) is None


@pytest.mark.parametrize(
    ("kind", "weight", "shifts"),
    [("fedavg", 0, False), ("fedprox", 0.1, False), ("fedacg", 0.2, False)],
)
def test_algorithms_of_the_house(kind, weight, shifts):
    name = {"fedprox": "mu", "fedacg": "beta"}.get(kind)
    algorithm = ALGORITHMS[kind](**({name: weight} if name else {}))
    found = decompose(algorithm.direction, DOWN, OWN)
    assert isinstance(found, Affine)
    assert found.weight == weight
    assert (found.shift is not None) is shifts


SLY = {
    "asks what the step is": lambda g, y, k, down, mine: g + down.c if isinstance(k, int) else g,
    "random": lambda g, y, k, down, mine: g + torch.rand(2),
}


@pytest.mark.parametrize("kind", SLY)
def test_who_says_one_thing_and_does_another_is_found_out(kind):
    assert decompose(SLY[kind], DOWN, OWN) is not None
    assert not verify(SLY[kind], DOWN, OWN, X)


@pytest.mark.parametrize("kind", ADDED)
def test_the_honest_are_believed(kind):
    assert verify(ADDED[kind], DOWN, OWN, X)


def test_a_shift_fits_if_it_is_one_for_all_or_one_for_each():
    three = Known(X.expand(3, 2), C.expand(3, 2))
    for shape, expected in [((2,), True), ((3, 2), True), ((1, 2), False), ((2, 2), False)]:
        assert matches(Affine(shift=torch.zeros(shape)), X, three) is expected
    assert not matches(Affine(shift=torch.zeros(2).double()), X, three)
    assert not matches(Affine(anchor=torch.zeros(3, 2)), X, three)
    assert not matches(Affine(anchor=torch.tensor(1.0)), X, three)
