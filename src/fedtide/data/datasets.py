"""Named datasets as tensors: from the package, from a folder, or from the Hugging Face hub."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedtide.core.errors import ConfigError, DataError, choices, require
from fedtide.core.types import Dataset
from fedtide.data import images, sensors, text
from fedtide.data.files import Parts
from fedtide.data.hub import Hub, installed, pictures, table
from fedtide.data.own import from_tensors, from_torch

__all__ = ["DATASETS", "DatasetInfo", "from_tensors", "from_torch", "load", "normalised", "place"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a dataset before it is loaded."""

    description: str
    classes: int
    read: Callable[..., Parts]  # (folder, classes, **settings)
    files: str  # what the dataset's folder must contain; empty: the package contains it
    licence: str
    hub: Hub | None = None
    fetch: Callable[..., Parts] = pictures  # (splits, hub, classes, **settings)
    mean: tuple[float, ...] = ()  # published, per channel, of pixels in [0, 1]
    std: tuple[float, ...] = ()
    folder: str = ""  # name of its folder, if it is another's

    @property
    def settings(self) -> tuple[str, ...]:
        """What `load` accepts beside the name and the folder."""
        parameters = inspect.signature(self.read).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


_IDX = (
    "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
    "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz"
)
_NPZ = "train.npz and test.npz (arrays x: uint8 images, y: labels)"

DATASETS = {
    "digits": DatasetInfo(
        description="handwritten digits, 8 x 8 grey, 1,797 images; comes with the package",
        classes=10,
        read=images.digits,
        files="",
        licence="CC BY 4.0 (UCI, Alpaydin and Kaynak 1998)",
        mean=(0.3054,),  # of the training examples
        std=(0.3753,),
    ),
    "mnist": DatasetInfo(
        description="handwritten digits, 28 x 28 grey, 60,000 + 10,000 images",
        classes=10,
        read=images.mnist,
        files=_IDX,
        licence="no formal licence; cite LeCun et al. 1998",
        hub=Hub("ylecun/mnist", colours="L"),
        mean=(0.1307,),
        std=(0.3081,),
    ),
    "fashion-mnist": DatasetInfo(
        description="clothing, 28 x 28 grey, 60,000 + 10,000 images",
        classes=10,
        read=images.mnist,
        files=_IDX,
        licence="MIT (Zalando)",
        hub=Hub("zalando-datasets/fashion_mnist", colours="L"),
        mean=(0.2861,),
        std=(0.3530,),
    ),
    "emnist-letters": DatasetInfo(
        description="handwritten letters, 28 x 28 grey, 124,800 + 20,800 images",
        classes=26,
        read=images.emnist_letters,
        files="the four emnist-letters-{train,test}-{images-idx3,labels-idx1}-ubyte.gz files",
        licence="public domain (NIST); cite Cohen et al. 2017",
    ),
    "cifar10": DatasetInfo(
        description="objects, 32 x 32 colour, 50,000 + 10,000 images",
        classes=10,
        read=images.cifar10,
        files=f"the unpacked binary version (cifar-10-batches-bin, not the Python one), or {_NPZ}",
        licence="no formal licence; cite Krizhevsky 2009",
        hub=Hub("uoft-cs/cifar10", inputs="img"),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    "cifar100": DatasetInfo(
        description="objects, 32 x 32 colour, 50,000 + 10,000 images, fine labels",
        classes=100,
        read=images.cifar100,
        files=f"the unpacked binary version (cifar-100-binary, not the Python one), or {_NPZ}",
        licence="no formal licence; cite Krizhevsky 2009",
        hub=Hub("uoft-cs/cifar100", inputs="img", label="fine_label"),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    "svhn": DatasetInfo(
        description="house numbers, 32 x 32 colour, 73,257 + 26,032 images",
        classes=10,
        read=images.svhn,
        files=_NPZ,
        licence="non-commercial use (Netzer et al. 2011)",
        hub=Hub("ufldl-stanford/svhn", config="cropped_digits"),
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    ),
    "tinyimagenet": DatasetInfo(
        description="objects, 64 x 64 colour, 100,000 + 10,000 images",
        classes=200,
        read=images.tinyimagenet,
        files=f"the unpacked folder tiny-imagenet-200 (needs Pillow), or {_NPZ}",
        licence="ImageNet's terms: non-commercial research",
        hub=Hub("zh-plus/tiny-imagenet", test="valid"),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
    ),
    "ag-news": DatasetInfo(
        description="news topics, 64 word tokens, 120,000 + 7,600 texts",
        classes=4,
        read=text.ag_news,
        files="train.csv (or train_subset.csv) and test.csv, plain or .gz",
        licence="non-commercial use; cite Zhang et al. 2015",
        hub=Hub("fancyzhx/ag_news", inputs="text"),
        fetch=text.ag_news_hub,
    ),
    "uci-har": DatasetInfo(
        description="smartphone activity, 9 channels x 128 steps, 10,299 windows of 30 people",
        classes=6,
        read=sensors.uci_har,
        files="an npz file (arrays x: floats [N, 9, 128], y: 0-5, subject: 1-30)",
        licence="CC BY 4.0 (UCI, Anguita et al. 2013)",
    ),
    "uci-har-people": DatasetInfo(
        description="the same, all 30 people as clients with test windows of their own",
        classes=6,
        read=sensors.uci_har_people,
        files="the npz file of uci-har",
        licence="CC BY 4.0 (UCI, Anguita et al. 2013)",
        folder="uci-har",
    ),
    "shakespeare": DatasetInfo(
        description="next character after 80, clients are the roles of the plays",
        classes=80,
        read=text.shakespeare,
        files="plays_gutenberg.zip (one .txt per play, each speech headed by its speaker's name)",
        licence="public domain",
        hub=Hub("flwrlabs/shakespeare", inputs="x", label="y"),
        fetch=text.shakespeare_hub,
    ),
}


def load(name: str, folder: Path | None = None, **settings: Any) -> Dataset:
    """Load the dataset `name`, with pixels in [0, 1].

    It is read from `folder` (the dataset's own or its parent), else from $FEDTIDE_DATA/<name>, else fetched
    from the hub. `settings` are the keyword arguments that its `DatasetInfo` lists.
    """
    info = _known(name)
    for setting in settings:
        if setting not in info.settings:
            raise ConfigError(
                f"data.{setting}: the dataset {name!r} has no such setting. {_offer(setting, info)}"
            )
    parts = _parts(name, info, folder, settings)
    return Dataset(
        name,
        parts.train,
        parts.test,
        info.classes,
        keys=parts.keys,
        vocabulary=parts.vocabulary,
        test_keys=parts.test_keys,
    )


def normalised(
    dataset: Dataset, how: str, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()
) -> Dataset:
    """The dataset with its pixels scaled in another way.

    "unit" means [0, 1]; "standard" subtracts the published mean and divides by the published std, or those
    that are given; "centred" uses 0.5 and 0.5.
    """
    ways = ("unit", "standard", "centred")
    if how not in ways:
        raise ConfigError(f"data.normalise: there is no way {how!r}. {choices(how, ways)}")
    if how != "unit":
        mean, std = _statistics(dataset, how, mean, std)
    return replace(
        dataset,
        train=replace(dataset.train, mean=mean, std=std),
        test=replace(dataset.test, mean=mean, std=std),
    )


def _statistics(
    dataset: Dataset, how: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and std of each channel."""
    where = f"data.normalise: {dataset.name!r}"
    inputs = dataset.train.tensor
    if inputs is None or inputs.dtype != torch.uint8:
        raise ConfigError(
            f"{where} has no pixels to normalise. Use 'unit', which leaves inputs as they are."
        )
    channels = dataset.shape[0]
    if how == "centred":
        return (0.5,) * channels, (0.5,) * channels
    for name, given in (("mean", mean), ("std", std)):
        must = f"a number for each of the {channels} channels of {dataset.name!r}"
        require(len(given) in (0, channels), f"data.{name}", must, list(given))
    info = DATASETS.get(dataset.name)
    if info is not None and len(info.mean) == channels:
        mean, std = mean or info.mean, std or info.std
    if not (mean and std):
        raise ConfigError(
            f"{where} has no published mean and std. Set data.mean and data.std, or use 'unit' or 'centred'."
        )
    return mean, std


def place(name: str, folder: Path | None = None) -> Path | None:
    """The folder that contains the dataset `name`, or None if it can only come from the hub.

    Hyphens, underscores and capitals do not matter: FashionMNIST, fashion_mnist, fashion-mnist.
    """
    if name in DATASETS:
        name = DATASETS[name].folder or name
    if folder is not None:
        require(Path(folder).is_dir(), "data.folder", "an existing folder", str(folder))
        return _subfolder(Path(folder), name) or Path(folder)
    root = os.environ.get("FEDTIDE_DATA", "")
    if not root:
        return None
    require(Path(root).is_dir(), "FEDTIDE_DATA", "an existing folder", root)
    return _subfolder(Path(root), name)


def _subfolder(root: Path, name: str) -> Path | None:
    def plain(word: str) -> str:
        return word.lower().replace("-", "").replace("_", "")

    found = (path for path in sorted(root.iterdir()) if plain(path.name) == plain(name))
    return next((path for path in found if path.is_dir()), None)


def _known(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise ConfigError(f"data.name: there is no dataset {name!r}. {choices(name, DATASETS)}")
    return DATASETS[name]


def _offer(setting: str, info: DatasetInfo) -> str:
    return choices(setting, info.settings) if info.settings else "It has none."


def _parts(name: str, info: DatasetInfo, folder: Path | None, settings: dict[str, Any]) -> Parts:
    """Read the dataset from the package or a folder, or fetch it from the hub."""
    if not info.files:
        return info.read(Path(__file__).parent, info.classes, **settings)
    found = place(name, folder)
    if found is not None:
        return info.read(found, info.classes, **settings)
    if info.hub is None or not installed():
        raise DataError(f"data.name: the dataset {name!r} is not here. {advice(name)}")
    try:
        splits = table(info.hub)
    except DataError as error:
        raise DataError(f"{error} {advice(name)}") from error
    return info.fetch(splits, info.hub, info.classes, **settings)


def advice(name: str) -> str:
    """What to do about a dataset that is not here, step by step."""
    info = DATASETS[name]
    folder, root = info.folder or name, os.environ.get("FEDTIDE_DATA", "")
    steps = f"put {info.files} into {root}/{folder}/."
    if not root:
        steps = (
            f"put {info.files} into a folder named {folder}, then type export FEDTIDE_DATA=<the folder "
            f"that holds {folder}>."
        )
    if info.hub is None:
        return steps[0].upper() + steps[1:]
    first = "" if installed() else 'pip install "fedtide[hub]", then '
    return f"To download it: {first}fedtide data {name}, with a connection to the hub. Or {steps}"
