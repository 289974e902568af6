"""A user's own tensors, torch datasets or Hugging Face datasets as a `Dataset`."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedtide.core.errors import DataError, require
from fedtide.core.trees import stack
from fedtide.core.types import Dataset, Examples, Inputs
from fedtide.data.lazy import Augment, lazy_examples

Ints = NDArray[np.int64]
Pair = tuple[
    Any, Any
]  # inputs [N, ...], or several by name, and targets [N, ...]: tensors or arrays


def from_tensors(
    train: Pair,
    test: Pair,
    classes: int | None = None,
    keys: Sequence[int] | None = None,
    name: str = "own",
    test_keys: Sequence[int] | None = None,
    times: Sequence[Any] | None = None,
) -> Dataset:
    """Inputs and targets as a dataset: uint8 images [N, C, H, W], floats of any shape, or tokens.

    A mapping of inputs by name becomes the keyword arguments of a model. Targets [N] of whole numbers are
    labels, and `classes` is one more than the largest unless given; other targets may have any shape and
    type. `keys` names the owner of each training example, `test_keys` that of each test example, and `times`
    (numbers or dates, of which only the order counts) says when each training example was recorded. Arrays
    that are mapped from a file stay there.
    """
    parts = [
        _examples(part, f"{name}.{where}") for part, where in ((train, "train"), (test, "test"))
    ]
    return _dataset(parts, classes, name, keys, test_keys, times)


def _dataset(
    parts: Sequence[Examples],
    classes: int | None,
    name: str,
    keys: Sequence[int] | None,
    test_keys: Sequence[int] | None,
    times: Sequence[Any] | None = None,
) -> Dataset:
    """A dataset of examples for training and for tests, once these fit together."""
    for what in ("inputs", "targets"):
        one, other = (described(getattr(part, what)) for part in parts)
        if one != other:
            got = f"{one} and {other}"
            raise DataError(
                f"{name}: train and test {what} must have one shape and type. Got {got}."
            )
    return Dataset(
        name,
        train=parts[0],
        test=parts[1],
        classes=_count_labels([part.targets for part in parts], classes, name),
        keys=_owners(keys, len(parts[0]), f"{name}: keys", "training"),
        vocabulary=_vocabulary(parts),
        test_keys=_owners(test_keys, len(parts[1]), f"{name}: test_keys", "test"),
        times=_times(times, len(parts[0]), name),
    )


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
    test_keys: Sequence[int] | None = None,
    lazy: bool = False,
    augment: Augment | None = None,
    cache_mb: int = 0,
) -> Dataset:
    """Two torch datasets of (input, target) items, read into memory once or, if `lazy`, for each batch.

    A lazy dataset is read and transformed whenever a batch needs an example. Random transforms are drawn
    anew each time, equally in a resumed run. `augment` is applied to inputs of training only. At most
    `cache_mb` megabytes of inputs stay in memory as the dataset returned them, with transforms drawn once.
    """
    both = (train, f"{name}.train"), (test, f"{name}.test")
    if not lazy:
        given = augment is not None or cache_mb
        require(not given, "from_torch: lazy", "True with augment or cache_mb", lazy)
        parts = [_stacked(*each) for each in both]
        return from_tensors(parts[0], parts[1], classes, keys, name, test_keys)
    require(cache_mb >= 0, "from_torch: cache_mb", "zero or more megabytes", cache_mb)
    read = [
        lazy_examples(*both[0], augment, cache_mb),
        lazy_examples(*both[1], None, cache_mb, is_training=False),
    ]
    checked = [
        replace(part, targets=_targets(part.targets, where))
        for part, (_, where) in zip(read, both, strict=True)
    ]
    return _dataset(checked, classes, name, keys, test_keys)


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
        checked = {}
        for name, value in given.items():
            at = f"{where}, input {name!r}"
            checked[str(name)] = _checked(value, _fitting(value, targets, at, 1), at)
        return Examples(checked, _targets(targets, where))
    return Examples(
        _checked(given, _fitting(given, targets, where, 2), where), _targets(targets, where)
    )


def _fitting(given: Any, targets: Tensor, where: str, dimensions: int) -> Tensor:
    """Inputs as a tensor, once there are as many as targets."""
    inputs = _tensor(given, where)
    fits = targets.dim() and inputs.dim() >= dimensions and len(inputs) == len(targets)
    if not fits or not inputs.numel() or not targets.numel():
        got = f"inputs {list(inputs.shape)} and targets {list(targets.shape)}"
        raise DataError(
            f"{where}: inputs [N, ...] and targets [N, ...] must go together. Got {got}."
        )
    return inputs


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


def _checked(given: Any, inputs: Tensor, where: str) -> Tensor:
    """Check inputs, and convert them to a type that models take; what is mapped from a file stays there."""
    stays = is_mapped(given)
    if inputs.is_floating_point():
        if stays and inputs.dtype != torch.get_default_dtype():
            raise DataError(
                f"{where}: numbers that are mapped from a file must be {torch.get_default_dtype()}. "
                f"Got {inputs.dtype}. Save them so, because a batch is taken as it is stored."
            )
        if not all(value.isfinite() for value in inputs.aminmax()):  # without a copy of all inputs
            raise DataError(f"{where}: inputs must be finite. Got NaN or infinity.")
        return inputs if stays else inputs.to(torch.get_default_dtype())
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
    return inputs if stays else inputs.long()


def is_mapped(value: Any) -> bool:
    """Is this an array that is mapped from a file, or a part of one?"""
    while isinstance(value, np.ndarray):
        if isinstance(value, np.memmap):
            return True
        value = value.base
    return False


def _tensor(value: Any, where: str) -> Tensor:
    try:
        with warnings.catch_warnings():  # a mapped file may be read-only: nothing writes to it
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        got = type(value).__name__
        raise DataError(f"{where}: must be tensors or arrays. Got {got} ({error}).") from error


def _owners(keys: Sequence[int] | None, count: int, where: str, part: str) -> Ints | None:
    """The owner of each example, once there is one for each."""
    if keys is None:
        return None
    owners = np.asarray(keys)
    if owners.shape != (count,) or owners.dtype.kind not in "iu":
        got = f"{owners.dtype} of shape {list(owners.shape)}"
        raise DataError(
            f"{where} must be one whole number per {part} example ({count}). Got {got}."
        )
    return owners.astype(np.int64)


def _times(times: Sequence[Any] | None, count: int, name: str) -> Ints | None:
    """The rank in time of each training example."""
    if times is None:
        return None
    given = np.asarray(times)
    if given.shape != (count,) or given.dtype.kind not in "iufMUS":
        got = f"{given.dtype} of shape {list(given.shape)}"
        raise DataError(f"{name}: times must be one per training example ({count}). Got {got}.")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)
