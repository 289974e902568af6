"""Readers of image datasets in their published files; each reads one folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.core.trees import tree_map
from fedtide.core.types import Examples
from fedtide.data.files import Parts, damaged, find, idx, labelled, npz, records
from fedtide.data.hub import planes


def digits(folder: Path, classes: int) -> Parts:
    """The digits that come with the package; the last fifth of each class is the test part.

    The published order goes by writer, so most writers of the test part are new to training.
    """
    path = folder / "digits.npz"
    images, labels = npz(path, "x", "y")
    test = np.zeros(len(labels), bool)
    for label in range(classes):
        of_class = np.flatnonzero(labels == label)
        test[of_class[len(of_class) - len(of_class) // 5 :]] = True
    images = images[:, None]
    return Parts(
        labelled(images[~test], labels[~test], classes, path),
        labelled(images[test], labels[test], classes, path),
    )


def mnist(folder: Path, classes: int) -> Parts:
    """MNIST or Fashion-MNIST from files with their original names."""
    return Parts(_idx_pair(folder, "train", classes), _idx_pair(folder, "t10k", classes))


def emnist_letters(folder: Path, classes: int) -> Parts:
    """EMNIST letters; the published files hold every image transposed and labels from 1."""
    train, test = (
        _idx_pair(folder, f"emnist-letters-{part}", classes, first=1) for part in ("train", "test")
    )
    return Parts(_upright(train), _upright(test))


def _upright(part: Examples) -> Examples:
    upright = tree_map(lambda images: images.transpose(2, 3).contiguous(), part.inputs)
    return Examples(upright, part.targets)


def _idx_pair(folder: Path, part: str, classes: int, first: int = 0) -> Examples:
    """Images and labels of one part; torchvision puts them into a subfolder raw/."""
    place = folder / "raw" if (folder / "raw").is_dir() else folder
    path = find(place, f"{part}-images-idx3-ubyte")
    images = idx(path, 3)
    labels = idx(find(place, f"{part}-labels-idx1-ubyte"), 1)
    if images.shape[1:] != (28, 28):
        size = " x ".join(map(str, images.shape[1:]))
        raise damaged(path, f"images must have 28 x 28 pixels. Got {size}")
    return labelled(images[:, None], labels, classes, path, first)


def cifar10(folder: Path, classes: int) -> Parts:
    """CIFAR-10, binary version or npz; the Python version is a pickle and is not read."""
    place = _inside(folder, "cifar-10-batches-bin")
    batches = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return _cifar(place, classes, (batches, ["test_batch.bin"]), labels=1)


def cifar100(folder: Path, classes: int) -> Parts:
    """CIFAR-100 with its fine labels, binary version or npz; the Python version is not read."""
    place = _inside(folder, "cifar-100-binary")
    return _cifar(place, classes, (["train.bin"], ["test.bin"]), labels=2)


def _cifar(folder: Path, classes: int, names: tuple[list[str], list[str]], labels: int) -> Parts:
    if (folder / "train.npz").is_file():
        return arrays(folder, classes, size=32)
    parts = []
    for part in names:
        paths = [find(folder, name) for name in part]
        pairs = [records(path, labels, 3 * 32 * 32) for path in paths]
        pixels = np.concatenate([pair[1] for pair in pairs]).reshape(-1, 3, 32, 32)
        fine = np.concatenate([pair[0][:, -1] for pair in pairs])  # the last label byte
        source = folder / (part[0] if len(part) == 1 else "data_batch_*.bin")
        parts.append(labelled(pixels, fine, classes, source))
    return Parts(parts[0], parts[1])


def svhn(folder: Path, classes: int) -> Parts:
    """SVHN cropped digits from npz; the label 10 means 0, as in the published files."""
    if not (folder / "train.npz").is_file() and any(folder.glob("*.mat")):
        raise DataError(
            f"{folder}: .mat files cannot be read. Save them as train.npz and test.npz with the "
            "arrays x (uint8, [N, 32, 32, 3]) and y, for example: "
            "d = scipy.io.loadmat('train_32x32.mat'); "
            "numpy.savez('train.npz', x=d['X'].transpose(3, 0, 1, 2), y=d['y'].ravel())."
        )
    return arrays(folder, classes, size=32, zero=10)


def arrays(folder: Path, classes: int, size: int, zero: int | None = None) -> Parts:
    """train.npz and test.npz with x (uint8 colour images) and y; the label `zero` stands for 0."""
    parts = []
    for name in ("train.npz", "test.npz"):
        path = find(folder, name)
        images, labels = npz(path, "x", "y")
        if zero is not None and labels.dtype.kind in "iu":
            labels = np.where(labels == zero, 0, labels)
        parts.append(labelled(_channels_first(images, size, path), labels, classes, path))
    return Parts(parts[0], parts[1])


def _channels_first(images: NDArray[Any], size: int, path: Path) -> NDArray[Any]:
    if images.dtype == np.uint8 and images.shape[1:] == (size, size, 3):
        return images.transpose(0, 3, 1, 2)
    if images.dtype != np.uint8 or images.shape[1:] != (3, size, size):
        what = f"x must be uint8 of shape [N, {size}, {size}, 3] or [N, 3, {size}, {size}]"
        got = f"{images.dtype} of shape {list(images.shape)}"
        raise damaged(path, f"{what}. Got {got}", "Save it in this form.")
    return images


def tinyimagenet(folder: Path, classes: int) -> Parts:
    """Tiny ImageNet as distributed (JPEGs; its validation part is the test part here), or npz."""
    if (folder / "train.npz").is_file():
        return arrays(folder, classes, size=64)
    place = _inside(folder, "tiny-imagenet-200")
    words = find(place, "wnids.txt").read_text().split()
    number = {word: index for index, word in enumerate(sorted(words))}
    train = [
        (path, number[word])
        for word in sorted(words)
        for path in sorted((place / "train" / word / "images").glob("*.JPEG"))
    ]
    notes = find(place / "val", "val_annotations.txt")
    rows = [line.split("\t")[:2] for line in notes.read_text().splitlines()]
    unknown = [row for row in rows if len(row) < 2 or row[1] not in number]
    if unknown:
        raise damaged(notes, f"this line names no known class: {unknown[0]}")
    test = [(place / "val" / "images" / row[0], number[row[1]]) for row in rows]
    return Parts(_jpegs(train, classes, place / "train"), _jpegs(test, classes, place / "val"))


def _jpegs(files: list[tuple[Path, int]], classes: int, source: Path) -> Examples:
    """Decoded JPEGs of 64 x 64 pixels; grey ones become colour."""
    if find_spec("PIL") is None:
        raise DataError(f'{source}: JPEG files need Pillow. Run: pip install "fedtide[hub]".')
    from PIL import Image

    pixels = np.empty((len(files), 3, 64, 64), np.uint8)
    for number, (path, _) in enumerate(files):
        try:
            with Image.open(path) as picture:
                if picture.size != (64, 64):
                    raise damaged(path, f"it must have 64 x 64 pixels. Got {picture.size}")
                pixels[number] = planes(picture, "RGB")
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise damaged(path, f"it is not a readable JPEG ({error})") from error
    return labelled(pixels, np.array([label for _, label in files], np.int64), classes, source)


def _inside(folder: Path, name: str) -> Path:
    """The folder that unpacking an archive makes, if it is there, else `folder`."""
    return folder / name if (folder / name).is_dir() else folder
