"""A user's own tensors, torch datasets or Hugging Face datasets as a `Dataset`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedtide.core.errors import DataError
from fedtide.core.trees import stack
from fedtide.core.types import Dataset, Examples, Inputs

Pair = tuple[
    Any, Any
]  # inputs [N, ...], or several by name, and targets [N, ...]: tensors or arrays


def from_tensors(
    train: Pair,
    test: Pair,
    classes: int | None = None,
    keys: Sequence[int] | None = None,
    name: str = "own",
) -> Dataset:
    """Inputs and targets as a dataset: uint8 images [N, C, H, W], floats of any shape, or tokens.

    A mapping of inputs by name becomes the keyword arguments of a model. Targets [N] of whole numbers are
    labels, and `classes` is one more than the largest unless given; other targets may have any shape and
    type. `keys` names the owner of each training example.
    """
    parts = [
        _examples(part, f"{name}.{where}") for part, where in ((train, "train"), (test, "test"))
    ]
    for what in ("inputs", "targets"):
        one, other = (described(getattr(part, what)) for part in parts)
        if one != other:
            got = f"{one} and {other}"
            raise DataError(
                f"{name}: train and test {what} must have one shape and type. Got {got}."
            )
    owners = None if keys is None else _owners(keys, len(parts[0]), name)
    labels = _count_labels([part.targets for part in parts], classes, name)
    return Dataset(name, parts[0], parts[1], labels, owners, _vocabulary(parts))


def _count_labels(targets: Sequence[Tensor], classes: int | None, name: str) -> int:
    """How many labels there are; 0 where targets are not labels."""
    if targets[0].dim() != 1 or targets[0].is_floating_point():
        if classes:
            got = described(targets[0])
            raise DataError(
                f"{name}: targets must be labels, whole numbers [N], with classes={classes}. Got {got}. "
                "Leave classes out where targets are not labels."
            )
        return 0
    highest = max(int(part.max()) for part in targets)
    if classes and highest >= classes:
        raise DataError(f"{name}: targets must be below classes={classes}. Got {highest}.")
    return classes or highest + 1


def _vocabulary(parts: Sequence[Examples]) -> int:
    """Inputs that are tokens are below this; 0 where they are not, or have names."""
    inputs = [part.tensor for part in parts if part.tensor is not None]
    if not inputs or inputs[0].is_floating_point() or inputs[0].dtype == torch.uint8:
        return 0
    return max(int(each.max()) for each in inputs) + 1


def described(inputs: Inputs) -> str:
    """The type and shape of a row, for messages: "torch.float32 [3]"."""
    if isinstance(inputs, Tensor):
        return f"{inputs.dtype} {list(inputs.shape[1:])}"
    return ", ".join(f"{name}: {described(leaf)}" for name, leaf in sorted(inputs.items()))


def from_torch(
    train: TorchDataset[Any],
    test: TorchDataset[Any],
    classes: int | None = None,
    keys: Sequence[int] | None = None,
    name: str = "own",
) -> Dataset:
    """Two torch datasets of (input, target) items, read into memory once."""
    parts = _stacked(train, f"{name}.train"), _stacked(test, f"{name}.test")
    return from_tensors(*parts, classes, keys, name)


def from_huggingface(
    train: Any,
    test: Any,
    inputs: str = "image",
    target: str = "label",
    keys: str | None = None,
    classes: int | None = None,
    name: str = "own",
) -> Dataset:
    """Two splits of a Hugging Face dataset: a column of images or numbers, and one of targets.

    `keys` is the column that names the owner of each training example, such as its writer.
    """
    columns = [inputs, target, *([keys] if keys else [])]
    xs, ys, *writers = _columns(train, columns, f"{name}.train")
    test_xs, test_ys = _columns(test, [inputs, target], f"{name}.test")
    owners = np.unique(writers[0], return_inverse=True)[1] if writers else None
    return from_tensors((xs, ys), (test_xs, test_ys), classes, owners, name)  # type: ignore[arg-type]


def _columns(dataset: Any, names: Sequence[str], where: str) -> list[Any]:
    """Columns of a Hugging Face dataset as arrays; images as [N, C, H, W]."""
    known = getattr(dataset, "column_names", None)
    missing = [name for name in names if name not in known] if isinstance(known, list) else names
    if missing:
        got = f"columns {', '.join(known)}" if isinstance(known, list) else type(dataset).__name__
        raise DataError(
            f"{where}: must be a split of a Hugging Face dataset with a column {missing[0]!r}. Got {got}. "
            "Name its columns with inputs= and target=."
        )
    table = dataset.select_columns(list(names)).with_format("numpy")[:]
    inputs, *others = (table[name] for name in names)
    if inputs.dtype == object or inputs.dtype.kind in "US":
        raise DataError(
            f"{where}.{names[0]}: must be images or numbers of one shape. Got {inputs.dtype} values. "
            "Resize images, or turn text into tokens, with its map() first."
        )
    if inputs.dtype == np.uint8 and inputs.ndim in (3, 4):  # [N, H, W] or [N, H, W, C]
        inputs = inputs[:, None] if inputs.ndim == 3 else inputs.transpose(0, 3, 1, 2)
    return [np.ascontiguousarray(inputs), *others]


def _stacked(dataset: Any, where: str) -> tuple[Inputs, Tensor]:
    """All items of a torch dataset, stacked into inputs and targets."""
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{where}: the dataset must have a length. Got {type(dataset).__name__}.")
    inputs: list[dict[str, Tensor]] = []
    targets: list[Tensor] = []
    for number in range(len(dataset)):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"{where}: item {number} must be (input, target). Got {type(item).__name__}."
            )
        named = item[0] if isinstance(item[0], Mapping) else {"": item[0]}
        wrong = [each for each in named.values() if not isinstance(each, Tensor | np.ndarray)]
        if wrong:
            got = type(wrong[0]).__name__
            raise DataError(
                f"{where}: the input of item {number} must be a tensor. Got {got}. "
                "Give the dataset a transform that makes tensors, such as ToTensor()."
            )
        inputs.append({name: torch.as_tensor(each) for name, each in named.items()})
        targets.append(torch.as_tensor(item[1]))
        for now, before in zip(_shapes(inputs[-1]), _shapes(inputs[0]), strict=False):
            if now != before:
                got = f"{now} at item {number}, {before} before"
                raise DataError(f"{where}: all inputs must have one shape. Got {got}.")
    if not inputs:
        raise DataError(f"{where}: there must be at least one example. Got none.")
    whole: dict[str, Tensor] = stack(inputs)
    return whole.get("", whole), torch.stack(targets)


def _shapes(named: Mapping[str, Tensor]) -> list[list[int]]:
    return [list(each.shape) for each in named.values()]


def _examples(part: Pair, where: str) -> Examples:
    """Check the training or the test part."""
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise DataError(f"{where}: must be (inputs, targets). Got {type(part).__name__}.")
    given, targets = part[0], _tensor(part[1], where)
    if isinstance(given, Mapping):
        named = {str(name): _tensor(value, where) for name, value in given.items()}
        for name, inputs in named.items():
            _check_lengths(inputs, targets, f"{where}, input {name!r}", 1)
        checked = {
            name: _checked(inputs, f"{where}, input {name!r}") for name, inputs in named.items()
        }
        return Examples(checked, _targets(targets, where))
    inputs = _tensor(given, where)
    _check_lengths(inputs, targets, where, 2)
    return Examples(_checked(inputs, where), _targets(targets, where))


def _check_lengths(inputs: Tensor, targets: Tensor, where: str, dimensions: int) -> None:
    fits = targets.dim() and inputs.dim() >= dimensions and len(inputs) == len(targets)
    if not fits or not inputs.numel() or not targets.numel():
        got = f"inputs {list(inputs.shape)} and targets {list(targets.shape)}"
        raise DataError(
            f"{where}: inputs [N, ...] and targets [N, ...] must go together. Got {got}."
        )


def _targets(targets: Tensor, where: str) -> Tensor:
    """Check targets, and convert them: labels and tokens to int64, others to torch's default type."""
    if targets.is_floating_point():
        wrong = targets[~targets.isfinite()]
        if len(wrong):
            raise DataError(f"{where}: targets must be finite. Got {wrong[0].item()}.")
        return targets.to(torch.get_default_dtype())
    if targets.is_complex() or (targets.dim() == 1 and int(targets.min()) < 0):
        got = f"{targets.dtype}, smallest {targets.min().item()}"
        raise DataError(f"{where}: targets must be whole numbers from 0, or floats. Got {got}.")
    return targets.long()


def _checked(inputs: Tensor, where: str) -> Tensor:
    """Check inputs, and convert them to a type that models take."""
    if inputs.is_floating_point():
        if not all(value.isfinite() for value in inputs.aminmax()):  # without a copy of all inputs
            raise DataError(f"{where}: inputs must be finite. Got NaN or infinity.")
        return inputs.to(torch.get_default_dtype())
    if inputs.dtype == torch.uint8:
        if inputs.dim() != 4:
            got = f"shape {list(inputs.shape)}"
            raise DataError(
                f"{where}: uint8 inputs are images and must be [N, C, H, W]. Got {got}."
            )
        return inputs
    if inputs.dtype == torch.bool or inputs.is_complex() or int(inputs.min()) < 0:
        got = f"{inputs.dtype}"
        raise DataError(f"{where}: inputs must be uint8, floats or tokens from 0. Got {got}.")
    return inputs.long()


def _tensor(value: Any, where: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        got = type(value).__name__
        raise DataError(f"{where}: must be tensors or arrays. Got {got} ({error}).") from error


def _owners(keys: Sequence[int], count: int, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    owners = np.asarray(keys)
    if owners.shape != (count,) or owners.dtype.kind not in "iu":
        got = f"{owners.dtype} of shape {list(owners.shape)}"
        raise DataError(
            f"{name}: keys must be one whole number per training example ({count}). Got {got}."
        )
    return owners.astype(np.int64)
