"""Datasets from the Hugging Face hub, by the package `datasets` (extra `hub`)."""

import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.data.files import Parts, damaged, labelled

PATIENCE = 3  # seconds to reach the hub
# With one of these, the hub is reached in another way or not at all.
CHOICES = ("HF_HUB_OFFLINE", "HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class Hub(NamedTuple):
    """The name of a dataset on the hub, and of its columns and splits."""

    id: str
    inputs: str = "image"
    label: str = "label"
    train: str = "train"
    test: str = "test"
    config: str | None = None
    colours: str = "RGB"  # Pillow's name for the wanted channels; "L" is grey


def installed() -> bool:
    """Are the packages of the extra `hub` installed?"""
    return find_spec("datasets") is not None and find_spec("PIL") is not None


def table(source: Hub) -> Mapping[str, Any]:
    """The splits of a dataset, from the hub's cache on this machine if it was fetched before."""
    _stay_offline()
    import datasets

    # Without the repository or a network it raises an OSError, for an unknown configuration a ValueError.
    failures = (OSError, ValueError, datasets.exceptions.DatasetsError)
    try:
        splits: Mapping[str, Any] = datasets.load_dataset(source.id, source.config)
    except failures as error:
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        what = f"{source.id!r} could not be fetched from the Hugging Face hub"
        raise DataError(f"data.name: {what} ({reason}).") from error
    return splits


def _stay_offline() -> None:
    """If the hub cannot be reached, use its cache only: it would be tried again for half a minute."""
    if not any(name in os.environ for name in CHOICES):
        try:
            socket.create_connection(("huggingface.co", 443), PATIENCE).close()
        except OSError:
            os.environ["HF_HUB_OFFLINE"] = "1"
    if os.environ.get("HF_HUB_OFFLINE") == "1":  # modules read it when they are imported
        for name in {"huggingface_hub.constants", "datasets.config"} & sys.modules.keys():
            sys.modules[name].HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def columns(splits: Mapping[str, Any], split: str, source: Hub, *names: str) -> Any:
    """One split with only the named columns, or an error that lists those there are."""
    if split not in splits:
        raise damaged(source.id, f"it has no split {split!r}, only {', '.join(splits)}")
    missing = [name for name in names if name not in splits[split].column_names]
    if missing:
        has = ", ".join(splits[split].column_names)
        raise damaged(source.id, f"it has no column {missing[0]!r}, only {has}")
    return splits[split].select_columns(list(names))


def pictures(splits: Mapping[str, Any], source: Hub, classes: int) -> Parts:
    """A dataset of images and labels."""
    train, test = (
        labelled(*_decoded(splits, split, source), classes, f"{source.id} ({split})")
        for split in (source.train, source.test)
    )
    return Parts(train, test)


def _decoded(
    splits: Mapping[str, Any], split: str, source: Hub
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The pixels [N, C, H, W] and labels of one split."""
    rows = columns(splits, split, source, source.inputs, source.label)
    labels = np.array(rows[source.label], np.int64)
    pixels: NDArray[np.uint8] | None = None
    for number, row in enumerate(rows):
        picture = planes(row[source.inputs], source.colours)
        if pixels is None:
            pixels = np.empty((len(labels), *picture.shape), np.uint8)
        if picture.shape != pixels.shape[1:]:
            what = f"image {number} of {split!r} has shape {picture.shape}"
            raise damaged(source.id, f"{what}, others {pixels.shape[1:]}")
        pixels[number] = picture
    if pixels is None:
        raise damaged(source.id, f"the split {split!r} is empty")
    return pixels, labels


def planes(picture: Any, colours: str) -> NDArray[np.uint8]:
    """A Pillow image as [C, H, W]."""
    array = np.asarray(picture.convert(colours), np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
