"""Named datasets: small files written by hand, damaged files, and where datasets are looked for."""

import gzip
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, DataError
from fedtide.data import datasets, files
from fedtide.data.datasets import DATASETS, load, normalised
from fedtide.data.source import Data


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTIDE_DATA", raising=False)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def write_mnist(folder: Path, prefix: str = "", test: str = "t10k", first: int = 0) -> None:
    """Three training images and two test images; image i has the value i + 1 at row 2, column 5."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 3), (test, 2)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 2, 5] = np.arange(1, count + 1)
        labels = np.arange(first, first + count, dtype=np.uint8)
        name = f"{prefix}{part}"
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))


# ------------------------------------------------------------------ the bundled digits


def test_digits_come_with_the_package() -> None:
    digits = load("digits")
    assert (len(digits.train), len(digits.test)) == (1442, 355)
    assert digits.shape == (1, 8, 8)
    assert digits.train.inputs.dtype == torch.uint8
    assert digits.train.targets.dtype == torch.int64
    # Of each class with n images, the last n // 5 are for testing: 178 zeros give 35.
    assert digits.test.targets.bincount().tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    # The first image of the published file is a zero; its first row is 0 0 5 13 9 1 0 0 of 16.
    row = [round(value * 255 / 16) for value in (0, 0, 5, 13, 9, 1, 0, 0)]
    assert digits.train.inputs[0, 0, 0].tolist() == row
    assert digits.train.targets[:4].tolist() == [0, 1, 2, 3]


def test_digits_statistics_are_those_of_the_training_part() -> None:
    inputs = load("digits").train.inputs / 255
    assert DATASETS["digits"].mean == (round(float(inputs.mean()), 4),)
    assert DATASETS["digits"].std == (round(float(inputs.std(correction=0)), 4),)


# ------------------------------------------------------------------ IDX


@pytest.mark.parametrize("spelling", ["fashion-mnist", "fashion_mnist", "FashionMNIST"])
def test_idx_files_in_any_spelling_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    write_mnist(tmp_path / spelling)
    monkeypatch.setenv("FEDTIDE_DATA", str(tmp_path))
    fashion = load("fashion-mnist")
    assert fashion.train.inputs.shape == (3, 1, 28, 28)
    assert fashion.train.inputs[:, 0, 2, 5].tolist() == [1, 2, 3]
    assert fashion.train.inputs.sum() == 6
    assert fashion.test.targets.tolist() == [0, 1]
    assert (fashion.name, fashion.classes, fashion.keys) == ("fashion-mnist", 10, None)


@pytest.mark.parametrize("inner", [".", "mnist", "mnist/raw", "raw"])
def test_the_folder_may_be_its_own_or_its_parent(tmp_path: Path, inner: str) -> None:
    write_mnist(tmp_path / inner)
    assert len(load("mnist", tmp_path).train) == 3


def test_emnist_letters_stand_upright_and_count_from_zero(tmp_path: Path) -> None:
    write_mnist(tmp_path, prefix="emnist-letters-", test="test", first=1)
    letters = load("emnist-letters", tmp_path)
    assert letters.train.inputs[:, 0, 5, 2].tolist() == [1, 2, 3]  # written at row 2, column 5
    assert letters.train.inputs.is_contiguous()
    assert letters.train.targets.tolist() == [0, 1, 2]


def test_emnist_letters_must_not_have_the_label_zero(tmp_path: Path) -> None:
    write_mnist(tmp_path, prefix="emnist-letters-", test="test", first=0)
    with pytest.raises(DataError, match=r"labels must lie in 1..26. Got 0..2"):
        load("emnist-letters", tmp_path)


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte"
ZEROS = np.zeros((3, 28, 28), np.uint8)
THREE = np.arange(3, dtype=np.uint8)
DAMAGE = {
    "truncated gzip": (IMAGES, gzip.compress(idx_bytes(ZEROS))[:-9], "cannot be read"),
    "not gzip": (IMAGES, b"<html>not found</html>", "cannot be read"),
    "wrong magic": (IMAGES, gzip.compress(idx_bytes(THREE)), "begin with the bytes 00000803"),
    "empty": (LABELS, b"", "begin with the bytes 00000801"),
    "header only": (LABELS, b"\0\0\x08\x01\0\0", "begin with"),
    "too short": (IMAGES, gzip.compress(idx_bytes(ZEROS)[:-1]), "promises 2,352 bytes. Got 2,351"),
    "too long": (IMAGES, gzip.compress(idx_bytes(ZEROS) + b"x"), "promises 2,352 bytes. Got more"),
    "huge": (IMAGES, gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), "its header asks for"),
    "other size": (IMAGES, gzip.compress(idx_bytes(ZEROS[:, :, :9])), "28 x 28 pixels. Got 28 x 9"),
    "fewer labels": (LABELS, idx_bytes(THREE[:2]), r"Got 3 examples and labels of shape \[2\]"),
    "bad label": (LABELS, idx_bytes(THREE + 8), r"labels must lie in 0..9. Got 8..10"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_idx_file_is_named(tmp_path: Path, kind: str) -> None:
    name, data, message = DAMAGE[kind]
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        load("mnist", tmp_path)
    assert "train-" in str(caught.value)
    assert "Download it again" in str(caught.value)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header promises 3 labels, the stream holds ten million zeros: four are read."""
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx_bytes(THREE) + bytes(10_000_000)))
    counts = []
    original = gzip.GzipFile.read

    def counting(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        data = original(self, size)
        counts.append(len(data))
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counting)
    with pytest.raises(DataError, match="Got more"):
        files.idx(path, 1)
    assert counts == [8, 8 + 3 + 1]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(DataError, match=r"the file train-labels-idx1-ubyte .* is missing"):
        load("mnist", tmp_path)


# ------------------------------------------------------------------ CIFAR, SVHN, Tiny ImageNet, HAR


def cifar_record(labels: list[int], red: int, green: int, blue: int) -> bytes:
    return bytes(labels) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def test_cifar10_binary(tmp_path: Path) -> None:
    place = tmp_path / "cifar-10-batches-bin"
    place.mkdir()
    for number in range(1, 6):
        (place / f"data_batch_{number}.bin").write_bytes(cifar_record([number], 10, number, 30))
    (place / "test_batch.bin").write_bytes(cifar_record([9], 1, 2, 3) * 2)
    cifar = load("cifar10", tmp_path)
    assert cifar.train.inputs.shape == (5, 3, 32, 32)
    assert cifar.train.targets.tolist() == [1, 2, 3, 4, 5]
    assert cifar.train.inputs[3, :, 7, 7].tolist() == [10, 4, 30]
    assert len(cifar.test) == 2

    (place / "data_batch_4.bin").write_bytes(cifar_record([4], 1, 1, 1)[:-5])
    with pytest.raises(DataError, match=r"data_batch_4.bin: it must hold records of 3,073 bytes"):
        load("cifar10", tmp_path)


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(cifar_record([19, 99], 1, 2, 3))
    (tmp_path / "test.bin").write_bytes(cifar_record([4, 0], 1, 2, 3))
    cifar = load("cifar100", tmp_path)
    assert (cifar.train.targets.tolist(), cifar.test.targets.tolist()) == ([99], [0])


def test_cifar_pickles_are_not_read(tmp_path: Path) -> None:
    place = tmp_path / "cifar10" / "cifar-10-batches-py"
    place.mkdir(parents=True)
    (place / "data_batch_1").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(DataError, match=r"data_batch_1.bin .* is missing"):
        load("cifar10", tmp_path)


def test_svhn_npz_with_ten_for_zero(tmp_path: Path) -> None:
    pixels = np.zeros((3, 32, 32, 3), np.uint8)
    pixels[1, 4, 6] = (7, 8, 9)
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", x=pixels, y=np.array([10, 1, 9]))
    svhn = load("svhn", tmp_path)
    assert svhn.train.targets.tolist() == [0, 1, 9]
    assert svhn.train.inputs[1, :, 4, 6].tolist() == [7, 8, 9]


def test_svhn_mat_files_get_advice(tmp_path: Path) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(b"MATLAB 5.0")
    with pytest.raises(DataError, match=r"\.mat files cannot be read\. Save them as train\.npz"):
        load("svhn", tmp_path)


PIXELS, ONE = np.zeros((1, 3, 32, 32), np.uint8), np.array([1])
BAD_NPZ = {
    "missing array": ({"x": PIXELS}, "the array 'y' is missing; the file has: x"),
    "objects": ({"x": np.array([{}], dtype=object), "y": ONE}, "not an npz file of plain arrays"),
    "floats": ({"x": PIXELS / 1.0, "y": ONE}, "x must be uint8 of shape"),
    "shape": ({"x": PIXELS[:, :2], "y": ONE}, r"Got uint8 of shape \[1, 2, 32, 32\]"),
    "float labels": ({"x": PIXELS, "y": ONE / 1.0}, "labels must be whole numbers. Got float64"),
    "scalar label": ({"x": PIXELS, "y": ONE[0]}, "one label per example"),
    "empty": ({"x": PIXELS[:0], "y": ONE[:0]}, "there are no examples"),
}


@pytest.mark.parametrize("kind", BAD_NPZ)
def test_a_bad_npz_is_named(tmp_path: Path, kind: str) -> None:
    arrays, message = BAD_NPZ[kind]
    np.savez(tmp_path / "train.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message) as caught:
        load("cifar10", tmp_path)
    assert "train.npz" in str(caught.value)


def test_an_npz_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    for data in (b"", b"nonsense", b"PK\x03\x04 cut"):
        path.write_bytes(data)
        with pytest.raises(DataError, match="not an npz file"):
            load("cifar10", tmp_path)


def test_tiny_imagenet_as_distributed(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    place = tmp_path / "tiny-imagenet-200"
    words = ["n02", "n01"]  # labels follow the sorted names
    for word, value in zip(words, (200, 50), strict=True):
        (place / "train" / word / "images").mkdir(parents=True)
        colour = image.new("RGB", (64, 64), (value, 0, 0))
        colour.save(place / "train" / word / "images" / f"{word}_0.JPEG", quality=100)
    (place / "val" / "images").mkdir(parents=True)
    image.new("L", (64, 64), 90).save(place / "val" / "images" / "val_0.JPEG")  # some are grey
    (place / "wnids.txt").write_text("\n".join(words))
    (place / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\n")
    tiny = load("tinyimagenet", tmp_path)
    assert tiny.train.inputs.shape == (2, 3, 64, 64)
    assert tiny.train.targets.tolist() == [0, 1]
    assert tiny.train.inputs[:, 0, 9, 9].tolist() == pytest.approx([50, 200], abs=3)
    assert tiny.test.inputs[0, :, 9, 9].tolist() == [90, 90, 90]
    assert tiny.test.targets.tolist() == [1]

    (place / "val" / "images" / "val_0.JPEG").write_bytes(b"\xff\xd8 not a picture")
    with pytest.raises(DataError, match=r"val_0.JPEG: it is not a readable JPEG"):
        load("tinyimagenet", tmp_path)


def write_har(path: Path, **changes: NDArray[np.generic]) -> None:
    arrays = {
        "x": np.arange(4 * 9 * 128).reshape(4, 9, 128).astype(np.float16) / 8192,
        "y": np.array([0, 5, 2, 3], np.uint8),
        "subject": np.array([30, 2, 1, 24], np.uint8),  # 2 and 24 are test subjects
    }
    np.savez(path, **(arrays | changes))  # type: ignore[arg-type]


def test_har_splits_by_subject(tmp_path: Path) -> None:
    write_har(tmp_path / "har.npz")
    har = load("uci-har", tmp_path)
    assert har.shape == (9, 128)
    assert har.train.inputs.dtype == torch.float32
    assert har.train.targets.tolist() == [0, 2]
    assert har.test.targets.tolist() == [5, 3]
    assert har.keys is not None
    assert har.keys.tolist() == [30, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((4, 6, 128), np.float16)}, r"shape \[N, 9, 128\]"),
        ({"x": np.full((4, 9, 128), np.nan, np.float16)}, "not finite"),
        ({"y": np.zeros(3, np.uint8)}, "one row per example"),
        ({"subject": np.zeros(3, np.uint8)}, "one row per example"),
        ({"subject": np.full(4, 2, np.uint8)}, "there are no examples"),
        ({"y": np.full(4, 6, np.uint8)}, r"0..5. Got 6..6"),
    ],
)
def test_bad_har_files(
    tmp_path: Path, changes: dict[str, NDArray[np.generic]], message: str
) -> None:
    write_har(tmp_path / "har.npz", **changes)
    with pytest.raises(DataError, match=message):
        load("uci-har", tmp_path)


# ------------------------------------------------------------------ where datasets are looked for


def test_a_dataset_that_is_not_here_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "installed", lambda: False)
    with pytest.raises(DataError) as caught:
        load("mnist")
    assert str(caught.value) == (
        "data.name: the dataset 'mnist' is not here. To download it: pip install \"fedtide[hub]\", then "
        "fedtide data mnist, with a connection to the hub. Or put train-images-idx3-ubyte.gz, "
        "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz into a folder "
        "named mnist, then type export FEDTIDE_DATA=<the folder that holds mnist>."
    )


def test_folders_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"data.folder must be an existing folder"):
        load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("FEDTIDE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="FEDTIDE_DATA must be an existing folder"):
        load("mnist")


def test_unknown_names_and_settings() -> None:
    with pytest.raises(ConfigError, match=r"no dataset 'minst'\. Did you mean 'mnist'\?"):
        load("minst")
    with pytest.raises(ConfigError, match=r"data.stride: the dataset 'digits' .* It has none."):
        load("digits", stride=2)
    with pytest.raises(ConfigError, match=r"data.strides: .* Did you mean 'stride'\?"):
        load("shakespeare", strides=2)


def test_the_table_is_complete() -> None:
    for name, info in DATASETS.items():
        assert len(info.mean) == len(info.std), name
        assert info.description, name
        assert info.licence, name
        assert bool(info.files) != (name == "digits"), name


# ------------------------------------------------------------------ normalisation


def test_normalised_by_hand() -> None:
    digits = load("digits")
    value = int(digits.train.inputs[0, 0, 0, 3]) / 255
    first = torch.tensor([0])
    for how, mean, std in (("unit", 0, 1), ("centred", 0.5, 0.5), ("standard", 0.3054, 0.3753)):
        inputs, _ = normalised(digits, how).train.take(first)
        assert float(inputs[0, 0, 0, 3]) == pytest.approx((value - mean) / std, rel=1e-5)
    back = normalised(normalised(digits, "standard"), "unit")
    assert (back.train.mean, back.test.std) == ((), ())


def test_normalised_by_numbers_of_your_own() -> None:
    """What is given counts, the rest is as published; a dataset of one's own has nothing published."""
    digits = load("digits")
    assert normalised(digits, "standard", std=(0.5,)).train.mean == (0.3054,)
    own = Data(name=replace(digits, name="own"), normalise="standard", mean=(0.25,), std=(0.5,))
    inputs, _ = own.load().test.take(torch.tensor([0]))
    raw = digits.test.inputs[:1].float() / 255
    assert torch.allclose(inputs, (raw - 0.25) / 0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"normalise": "standard", "mean": (float("nan"),)},
            "data.mean must be numbers. Got nan.",
        ),
        (
            {"normalise": "standard", "std": (0.5, 0.5, 0.5)},
            "data.std must be a number for each of the 1 channels of 'digits'. Got [0.5, 0.5, 0.5].",
        ),
    ],
)
def test_wrong_numbers_to_normalise_with(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Data(**settings).load()
    assert str(caught.value) == message


def test_normalised_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    digits = load("digits")
    with pytest.raises(ConfigError, match=r"no way 'centered'\. Did you mean 'centred'\?"):
        normalised(digits, "centered")
    with pytest.raises(ConfigError, match="'own' has no published mean and std"):
        normalised(replace(digits, name="own"), "standard")
    write_har(tmp_path / "har.npz")
    with pytest.raises(ConfigError, match="'uci-har' has no pixels"):
        normalised(load("uci-har", tmp_path), "centred")
