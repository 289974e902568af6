"""Readers of the published file formats that do not trust them: no pickles, sizes are checked first."""

import gzip
import lzma
import struct
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.core.types import Examples

# The largest published file (EMNIST by class) has 640 MB; a header that asks for more is wrong.
LIMIT = 2**31

# The exceptions that readers of zip files and arrays raise for damaged files.
DAMAGES = (
    *(OSError, EOFError, ValueError, MemoryError, OverflowError, TypeError, KeyError, RuntimeError),
    *(SyntaxError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


class Parts(NamedTuple):
    """What a reader returns: the parts of a dataset, without its name."""

    train: Examples
    test: Examples
    keys: NDArray[np.int64] | None = None  # natural owner of each training example
    vocabulary: int = 0  # token ids are below this
    test_keys: NDArray[np.int64] | None = None  # natural owner of each test example


def damaged(source: object, what: str, do: str = "Download it again.") -> DataError:
    """The error for a damaged file: which one, what is wrong, what to do."""
    return DataError(f"{source}: {what}. {do}")


def find(folder: Path, *names: str) -> Path:
    """The first of `names` that is in `folder`, plain or gzipped."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    wanted = " or ".join(names)
    raise DataError(f"{folder}: the file {wanted} (plain or .gz) is missing. Put it there.")


def content(path: Path, limit: int = LIMIT) -> bytes:
    """All bytes of a plain or gzipped file, unless they are more than `limit`."""
    data = _bytes(path, limit + 1)
    if len(data) > limit:
        raise damaged(path, f"it holds more than {limit:,} bytes")
    return data


def _bytes(path: Path, count: int) -> bytes:
    """The first `count` bytes of a file, unzipped where its name ends in .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"it cannot be read ({error})") from error


def idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file: 0, 0, 8, the number of dimensions, the dimensions, the values."""
    start = 4 + 4 * dimensions
    header = _bytes(path, start)
    if header[:4] != bytes((0, 0, 8, dimensions)) or len(header) < start:
        want, got = bytes((0, 0, 8, dimensions)).hex(), header[:4].hex()
        raise damaged(path, f"an IDX file here must begin with the bytes {want}. Got {got}")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
    size = prod(shape)
    if size > LIMIT:
        raise damaged(path, f"its header asks for {size:,} bytes, more than any published file")
    data = _bytes(path, start + size + 1)  # one byte more, to notice a file that is too long
    if len(data) != start + size:
        got = "more" if len(data) > start + size else f"{len(data) - start:,}"
        raise damaged(path, f"its header promises {size:,} bytes. Got {got}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def npz(path: Path, *names: str) -> list[NDArray[Any]]:
    """Named arrays of an npz file; arrays of Python objects are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > 2 * LIMIT:
            raise damaged(path, f"it unpacks to {size:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in names if name not in arrays.files]
            if missing:
                has = ", ".join(arrays.files) or "nothing"
                what = f"the array {missing[0]!r} is missing; the file has: {has}"
                raise damaged(path, what, f"Save it with the arrays {', '.join(names)}.")
            return [arrays[name] for name in names]
    except DAMAGES as error:
        raise damaged(path, f"it is not an npz file of plain arrays ({error})") from error


def records(path: Path, labels: int, pixels: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Labels and pixels of a file of records, each the label bytes and then the pixels (binary CIFAR)."""
    data = np.frombuffer(content(path), np.uint8)
    size = labels + pixels
    if len(data) == 0 or len(data) % size:
        raise damaged(path, f"it must hold records of {size:,} bytes. Got {len(data):,} bytes")
    table = data.reshape(-1, size)
    return table[:, :labels], table[:, labels:]


def labelled(
    inputs: NDArray[Any], labels: NDArray[Any], classes: int, source: object, first: int = 0
) -> Examples:
    """Examples of inputs and labels, once these are checked; `first` is the smallest label in the file."""
    if labels.shape != inputs.shape[:1]:
        what = f"there must be one label per example. Got {len(inputs):,} examples"
        raise damaged(source, f"{what} and labels of shape {list(labels.shape)}")
    if len(labels) == 0:
        raise damaged(source, "there are no examples")
    if labels.dtype.kind not in "iu":
        raise damaged(source, f"labels must be whole numbers. Got {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < first or high >= first + classes:
        what = f"labels must lie in {first}..{first + classes - 1}. Got {low}..{high}"
        raise damaged(source, what)
    targets = torch.from_numpy(labels.astype(np.int64) - first)
    # Copied, because arrays over a file's bytes are read-only and may be transposed views.
    return Examples(torch.from_numpy(np.array(inputs, order="C")), targets)
