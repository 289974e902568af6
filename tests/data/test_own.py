"""A user's own tensors, torch datasets and Hugging Face datasets."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import fedtide
from fedtide.core.errors import DataError
from fedtide.data.own import from_huggingface, from_tensors, from_torch

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
        ((X[:, :0], Y), GOOD, {}, r"own.train: .* Got inputs \[4, 0\]"),
        (X, GOOD, {}, "own.train: must be .inputs, targets.. Got Tensor"),
        ((X, Y / 2), GOOD, {}, "targets must have one shape and type"),
        ((X, Y / 0), (X, Y / 2), {}, "targets must be finite. Got nan"),
        (
            (X, Y / 2),
            (X, Y / 2),
            {"classes": 2},
            "must be labels, whole numbers .N., with classes=2",
        ),
        ((X, Y - 1), GOOD, {}, "smallest -1"),
        ((X / 0, Y), GOOD, {}, "inputs must be finite"),
        ((X.masked_fill(X[1, 1] == X, torch.nan), Y), GOOD, {}, "inputs must be finite"),
        ((X.masked_fill(X[1, 1] == X, -torch.inf), Y), GOOD, {}, "inputs must be finite"),
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


def pictures(count, width=4, colours=3):
    from PIL import Image

    shape = (count, 5, width, colours) if colours == 3 else (count, 5, width)
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    return pixels, [Image.fromarray(picture) for picture in pixels]


def split(**columns):
    datasets = pytest.importorskip("datasets")
    features = {"image": datasets.Image()} if "image" in columns else {}
    made = datasets.Dataset.from_dict(columns)
    return made.cast_column("image", features["image"]) if features else made


@pytest.mark.parametrize("colours", [1, 3])
def test_pictures_of_a_hugging_face_dataset(colours):
    pixels, images = pictures(4, colours=colours)
    part = split(image=images, label=[0, 1, 2, 1], writer=["b", "a", "b", "c"])
    dataset = from_huggingface(part, part, keys="writer")
    expected = pixels[:, None] if colours == 1 else pixels.transpose(0, 3, 1, 2)
    assert torch.equal(dataset.train.inputs, torch.from_numpy(expected.copy()))
    assert dataset.train.targets.tolist() == [0, 1, 2, 1]
    assert dataset.keys.tolist() == [1, 0, 1, 2]
    assert dataset.classes == 3


def test_numbers_and_tokens_of_a_hugging_face_dataset():
    part = split(x=[[1.0, 2.0], [3.0, 4.0]], y=[0, 1])
    dataset = from_huggingface(part, part, inputs="x", target="y")
    assert dataset.train.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    tokens = from_huggingface(*[split(x=[[1, 2], [3, 4]], y=[0, 1])] * 2, inputs="x", target="y")
    assert tokens.vocabulary == 5


def test_hugging_face_mistakes():
    part = split(x=[[1.0], [2.0]], y=[0, 1], text=["a", "bc"])
    with pytest.raises(
        DataError, match=r"column 'image'. Got columns x, y, text. Name its columns"
    ):
        from_huggingface(part, part)
    with pytest.raises(DataError, match="turn text into tokens"):
        from_huggingface(part, part, inputs="text", target="y")
    with pytest.raises(DataError, match="Got list"):
        from_huggingface([1], [1])
    _, wide = pictures(1, width=6)
    _, narrow = pictures(1)
    uneven = split(image=narrow + wide, label=[0, 1])
    with pytest.raises(DataError, match="of one shape"):
        from_huggingface(uneven, uneven)


class Halved(fedtide.Data):
    """A user's source: every second example of a dataset."""

    def load(self):  # type: ignore[no-untyped-def]
        whole = super().load()
        half = whole.train.some(torch.arange(0, len(whole.train), 2))
        return replace(whole, train=half)


def test_a_checksum_is_of_what_a_class_of_a_user_loads() -> None:
    assert Halved().checksum() == Halved().load().checksum()
    assert Halved().checksum() != fedtide.Data().checksum()
