"""A user's own tensors and torch datasets."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from fedtide.core.errors import DataError
from fedtide.data.datasets import from_tensors, from_torch

X, Y = torch.arange(12.0, dtype=torch.float64).view(4, 3), torch.tensor([0, 2, 1, 2])


def test_from_tensors() -> None:
    own = from_tensors((X, Y), (X.numpy()[:2], Y.numpy()[:2]), keys=[7, 7, 8, 8])
    assert (own.name, own.classes, own.shape, own.vocabulary) == ("own", 3, (3,), 0)
    assert own.train.inputs.dtype == torch.float32
    assert own.test.inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert own.keys is not None
    assert own.keys.tolist() == [7, 7, 8, 8]
    assert from_tensors((X, Y), (X, Y), classes=5).classes == 5


def test_tokens_get_a_vocabulary() -> None:
    tokens = torch.tensor([[3, 0], [9, 1]], dtype=torch.int32)
    own = from_tensors((tokens, [0, 1]), (tokens + 4, [0, 1]))
    assert own.vocabulary == 14
    inputs, _ = own.train.take(torch.tensor([1]))
    assert inputs.dtype == torch.int64


PIXELS = torch.zeros(4, 3, 3, dtype=torch.uint8)
GOOD = (X, Y)


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        ((X, Y[:3]), GOOD, {}, r"own.train: .* Got inputs \[4, 3\] and targets \[3\]"),
        (GOOD, (X[:0], Y[:0]), {}, "own.test: .* must go together"),
        (X, GOOD, {}, "own.train: must be .inputs, targets.. Got Tensor"),
        ((X, Y / 2), GOOD, {}, "targets must be whole numbers from 0"),
        ((X, Y - 1), GOOD, {}, "smallest -1"),
        ((X / 0, Y), GOOD, {}, "inputs must be finite"),
        ((PIXELS, Y), GOOD, {}, r"must be \[N, C, H, W\]"),
        ((X.long() - 1, Y), GOOD, {}, "tokens from 0"),
        ((["a", "b"], Y), GOOD, {}, "must be tensors or arrays. Got list"),
        (GOOD, (X[:, :2], Y), {}, "must have one shape and type"),
        (GOOD, (X.long(), Y), {}, "must have one shape and type"),
        (GOOD, GOOD, {"classes": 2}, "must be below classes=2. Got 2"),
        (GOOD, GOOD, {"keys": [1, 2]}, r"one whole number per training example \(4\)"),
    ],
)
def test_what_does_not_fit_is_refused(train, test, options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=message):
        from_tensors(train, test, **options)


class Items(TorchDataset[tuple[object, int]]):
    def __init__(self, *items: object) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:  # type: ignore[override]
        return self.items[index]


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield torch.ones(2)


def test_from_torch() -> None:
    items = Items((torch.ones(2), 1), (np.zeros(2, np.float32), torch.tensor(0)))
    own = from_torch(items, TensorDataset(X[:, :2].float(), Y), name="mine")
    assert (own.name, own.classes, own.shape) == ("mine", 3, (2,))
    assert own.train.inputs.tolist() == [[1, 1], [0, 0]]
    assert own.train.targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (Items(), "own.train: there must be at least one example"),
        (Items(torch.ones(2)), "item 0 must be .input, target.. Got Tensor"),
        (Items(("a picture", 1)), r"Got str. Give the dataset a transform"),
        (Items((torch.ones(2), 1), (torch.ones(3), 1)), r"Got \[3\] at item 1, \[2\] before"),
        (Endless(), "must have a length. Got Endless"),
    ],
)
def test_torch_datasets_that_do_not_fit(items: TorchDataset[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_torch(items, items)
