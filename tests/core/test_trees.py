"""Trees of tensors, and weighted sums of whole models."""

from typing import NamedTuple

import torch

from fedtide.core.mix import mixed, mixed_buffers
from fedtide.core.trees import joined, leaves, outline, repeated, rows, size_bytes, stack, tree_map
from fedtide.core.types import Model, Nothing


class Pair(NamedTuple):
    a: torch.Tensor
    b: object


def tree(value):
    return Pair(torch.full((2,), float(value)), {"n": torch.tensor(value), "none": Nothing()})


def test_leaves_come_in_a_fixed_order():
    assert [leaf.tolist() for leaf in leaves(tree(3))] == [[3, 3], 3]
    assert list(leaves(Nothing())) == []
    assert list(leaves({})) == []


def test_tree_map_keeps_the_shape():
    total = tree_map(lambda x, y, z: x + y * z, tree(1), tree(2), tree(3))
    assert isinstance(total, Pair)
    assert total.a.tolist() == [7, 7]
    assert total.b["n"].tolist() == 7
    assert total.b["none"] == Nothing()
    assert tree_map(torch.neg, Nothing()) == Nothing()


def test_stacking_and_rows():
    stacked = stack([tree(1), tree(2), tree(3)])
    assert stacked.a.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert rows(stacked, 1).b["n"].tolist() == 2
    assert rows(stacked, slice(2)).b["n"].tolist() == [1, 2]
    assert rows(stacked, torch.tensor([2, 0])).b["n"].tolist() == [3, 1]


def test_joined():
    first, second = stack([tree(1), tree(2)]), stack([tree(3)])
    assert joined([first, second]).b["n"].tolist() == [1, 2, 3]
    assert joined([first]) is first


def test_repeated_copies_nothing():
    one = tree(4)
    many = repeated(one, 1000)
    assert many.a.shape == (1000, 2)
    assert many.a.data_ptr() == one.a.data_ptr()
    assert many.b["n"].tolist() == [4] * 1000


def test_outlines_tell_forms_apart_but_not_values():
    class Word(NamedTuple):
        """No tensors."""

    class Other(NamedTuple):
        """No tensors either."""

    one = Pair(torch.zeros(2), {"n": torch.ones(())})
    assert outline(one) == outline(Pair(torch.ones(2), {"n": torch.zeros(())}))
    for other in (
        Pair(torch.zeros(3), one.b),
        Pair(torch.zeros(2, dtype=torch.int64), one.b),
        Pair(one.a, {"m": torch.ones(())}),
    ):
        assert outline(one) != outline(other)
    assert outline(Pair(Word(), Word())) != outline(Pair(Word(), Other()))


def test_bytes():
    assert size_bytes(tree(1)) == 2 * 4 + 8
    assert size_bytes(Nothing()) == 0


# Mixing


def model(x, mean, count):
    return Model(torch.tensor([x]), {"mean": torch.tensor([mean]), "count": torch.tensor(count)})


def test_models_are_mixed_with_their_buffers():
    """x = 1/4 * 8 + 3/4 * 4 = 5, mean = 1/4 * 1 + 3/4 * 2 = 1.75, count = 1/4 * 10 + 3/4 * 4 = 5.5 -> 6."""
    weights = torch.tensor([0.25, 0.75])
    mix = mixed([model(8.0, 1.0, 10), model(4.0, 2.0, 4)], weights)
    assert mix.x.tolist() == [5]
    assert mix.buffers["mean"].tolist() == [1.75]
    assert mix.buffers["count"].tolist() == 6
    assert mix.buffers["count"].dtype == torch.int64
    assert mix.buffers["mean"].dtype == torch.float32


def test_counters_are_exact_where_everybody_agrees():
    """A third times three is not quite one in float32; a counter of 1,000,000 must not notice."""
    weights = torch.full((3,), 1 / 3)
    buffers = mixed_buffers({"count": torch.full((3,), 1_000_000)}, weights)
    assert buffers["count"].tolist() == 1_000_000


def test_models_without_buffers():
    mix = mixed([Model(torch.tensor([2.0]), {}), Model(torch.tensor([4.0]), {})], torch.ones(2) / 2)
    assert mix.x.tolist() == [3]
    assert mix.buffers == {}


def test_double_precision_stays():
    x = torch.tensor([1 / 3], dtype=torch.float64)
    mix = mixed([Model(x, {"m": x}), Model(x, {"m": x})], torch.tensor([0.5, 0.5]))
    assert torch.equal(mix.x, x)
    assert torch.equal(mix.buffers["m"], x)
