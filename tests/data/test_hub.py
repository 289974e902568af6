"""The Hugging Face hub, stood in for by local folders: a local path is a valid hub id."""

import importlib.util
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from fedtide.core.errors import DataError
from fedtide.data import hub, text
from fedtide.data.datasets import DATASETS, load
from fedtide.data.hub import Hub

hugging = pytest.importorskip("datasets")
constants = pytest.importorskip("huggingface_hub.constants")
image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDTIDE_DATA", raising=False)
    monkeypatch.setattr(hugging.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(hugging.config, "HF_HUB_OFFLINE", True)
    hugging.disable_progress_bars()


def points_to(monkeypatch: pytest.MonkeyPatch, name: str, hub: Hub) -> None:
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], hub=hub))


def write_parquet(folder: Path, **splits: dict[str, list[object]]) -> str:
    folder.mkdir()
    for split, table in splits.items():
        hugging.Dataset.from_dict(table).to_parquet(folder / f"{split}.parquet")
    return str(folder)


def write_pictures(folder: Path, size: int = 28) -> str:
    """An image folder: two classes of one training image, one test image."""
    for split, label, value in (("train", "a", 9), ("train", "b", 200), ("test", "b", 77)):
        place = folder / split / label
        place.mkdir(parents=True)
        picture = image.new("L", (28, size if split == "test" else 28), value)
        picture.putpixel((3, 1), 255)
        picture.save(place / "0.png")
    return str(folder)


def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points_to(monkeypatch, "mnist", Hub(write_pictures(tmp_path / "pictures"), colours="L"))
    mnist = load("mnist")
    assert mnist.train.inputs.shape == (2, 1, 28, 28)
    assert sorted(mnist.train.inputs[:, 0, 0, 0].tolist()) == [9, 200]
    assert mnist.train.inputs[:, 0, 1, 3].tolist() == [255, 255]  # column 3, row 1
    assert mnist.test.inputs[0, 0, 0, 0] == 77
    assert mnist.test.targets.tolist() == [1]


def test_grey_images_become_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points_to(monkeypatch, "cifar10", Hub(write_pictures(tmp_path / "pictures")))
    pixels = load("cifar10").test.inputs[0]
    assert pixels[:, 3, 1].tolist() == [77, 77, 77]
    assert pixels[:, 1, 3].tolist() == [255, 255, 255]  # column 3, row 1


def test_other_splits_and_columns_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = write_pictures(tmp_path / "pictures")
    points_to(monkeypatch, "mnist", Hub(where, test="valid", colours="L"))
    with pytest.raises(DataError, match="it has no split 'valid', only train, test"):
        load("mnist")
    points_to(monkeypatch, "mnist", Hub(where, label="fine", colours="L"))
    with pytest.raises(DataError, match="it has no column 'fine', only image, label"):
        load("mnist")


def test_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = write_parquet(
        tmp_path / "news",
        train={"text": ["b a b", "c"], "label": [0, 3]},
        test={"text": ["a d"], "label": [1]},
    )
    points_to(monkeypatch, "ag-news", Hub(where, inputs="text"))
    news = load("ag-news", length=3)
    assert news.train.inputs.tolist() == [[2, 3, 2], [4, 0, 0]]
    assert news.test.inputs.tolist() == [[3, 1, 0]]
    assert news.train.targets.tolist() == [0, 3]


def test_shakespeare_equals_the_local_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 rows of LEAF's form: 900 train, 79 skipped, 21 test; a second role is too short."""
    said = "".join("ab c"[number * number % 4] for number in range(1080))
    rows = [(said[i : i + 80], said[i + 80], "HAMLET") for i in range(1000)]
    rows += [("x" * 80, "y", "GHOST")] * 5
    x, y, role = (list(column) for column in zip(*rows, strict=True))
    where = write_parquet(tmp_path / "plays", train={"x": x, "y": y, "character_id": role})
    points_to(monkeypatch, "shakespeare", Hub(where, inputs="x", label="y"))
    plays = load("shakespeare", fraction=1.0)
    assert (len(plays.train), len(plays.test)) == (900, 21)
    assert plays.train.inputs[5].tolist() == text.encoded(said[5:85]).tolist()
    assert plays.test.targets[-1] == text.encoded(said[-1]).item()
    assert plays.keys is not None
    assert set(plays.keys.tolist()) == {0}


def test_no_network_is_a_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(hugging, "load_dataset", unreachable)
    with pytest.raises(DataError) as caught:
        load("svhn")
    assert str(caught.value) == (
        "data.name: 'ufldl-stanford/svhn' could not be fetched from the Hugging Face hub "
        "(Couldn't reach the Hub). To download it: fedtide data svhn, with a connection to the hub. Or put "
        "train.npz and test.npz (arrays x: uint8 images, y: labels) into a folder named svhn, then type "
        "export FEDTIDE_DATA=<the folder that holds svhn>."
    )


def test_a_repository_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points_to(monkeypatch, "mnist", Hub(str(tmp_path / "gone")))
    with pytest.raises(DataError, match="could not be fetched from the Hugging Face hub"):
        load("mnist")


def test_without_the_extra_the_hub_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(
        "fedtide.data.hub.find_spec", lambda name: None if name == "datasets" else original(name)
    )
    with pytest.raises(
        DataError, match=r'pip install "fedtide\[hub\]", then fedtide data cifar100'
    ):
        load("cifar100")


def test_a_hub_out_of_reach_is_not_tried_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: object, patience: float) -> None:
        raise OSError("no route")

    for name in hub.CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    hub._stay_offline()
    assert os.environ.pop("HF_HUB_OFFLINE") == "1"
    assert constants.HF_HUB_OFFLINE  # the module had been imported before
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    hub._stay_offline()
    assert "HF_HUB_OFFLINE" not in os.environ
