"""Examples that are read when a batch needs them."""

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedtide
from fedtide.core.errors import ConfigError, DataError
from fedtide.core.types import Group
from fedtide.data.batches import Batching, ClientData
from fedtide.run.execute import run_study
from fedtide.run.loop import run
from fedtide.run.study import Cell, Study
from tests.run.test_resume import in_pieces, same
from tests.worlds import settings_of, timeless

INPUTS = np.random.default_rng(0).normal(size=(60, 1, 4, 4)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(3, size=60)


class Drawn:
    """Images with labels; with noise, the transform draws from all three generators."""

    def __init__(self, count=60, noise=0.0):
        self.targets, self.noise, self.read = LABELS[:count], noise, []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, place):
        self.read.append(place)
        shake = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002
        return torch.from_numpy(INPUTS[place]) + self.noise * shake, int(self.targets[place])


class Named:
    """Inputs by name, and targets that no attribute lists."""

    def __len__(self):
        return 40

    def __getitem__(self, place):
        image = torch.from_numpy(INPUTS[place]).double()
        return {"image": image, "mask": torch.ones(2)}, np.float64(image.mean())


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 1)

    def forward(self, image, mask):
        return self.out(image.flatten(1)) * mask[:, :1]


def lazily(noise=0.0, **settings):
    return fedtide.from_torch(Drawn(60, noise), Drawn(20), lazy=True, **settings)


def experiment(dataset, kind="loop", model=None, **train):
    model = model or nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    train = {"batch_size": 5, "epochs": 2, "lr": 0.2, **train}
    return fedtide.Experiment(
        data=fedtide.Data(name=dataset),
        population=fedtide.Fixed(clients=4, rounds=4),
        train=fedtide.Train(model=model, **train),
        engine=settings_of(kind=kind, workers=2),
    )


def test_without_chance_it_is_the_same_as_in_memory():
    whole = fedtide.from_torch(Drawn(60), Drawn(20))
    for kind in ("loop", "vectorised"):
        lazy = run(experiment(lazily(), kind)).rounds
        assert timeless(lazy) == timeless(run(experiment(whole, kind)).rounds)


DRAWN = {
    "transform": {"noise": 1.0},
    "augment": {"augment": lambda image: image + torch.rand(())},
}


@pytest.mark.parametrize("how", DRAWN)
def test_augmentation_differs_from_epoch_to_epoch(how):
    """Every example that is drawn has an address of its own: the same again, and another elsewhere."""
    data = fedtide.Data(name=lazily(**DRAWN[how]))
    dataset, holdings = data.deal(lambda _: [Group(4)], 1, 0)
    clients, ids = (
        ClientData(dataset.train, holdings, Batching(batch_size=5, epochs=2), 0),
        np.arange(4),
    )

    def shakes(t):
        """The places of the examples of each client, and what was added to each: [clients, drawn]."""
        picks = clients.picks(t, ids, clients.steps(t, ids), "batch")
        inputs, _ = dataset.train.take(torch.from_numpy(picks.places), picks.luck)
        added = inputs.numpy() - INPUTS[picks.places]
        return picks.places.reshape(4, -1), added.mean((3, 4, 5)).reshape(4, -1)

    (places, first), (_, again), (_, later) = shakes(0), shakes(0), shakes(1)
    assert (first == again).all()
    assert not (first == later).any()
    for mine, drawn in zip(places, first, strict=True):
        assert (np.bincount(mine, minlength=60)[mine] == 2).all()  # two epochs
        assert len(np.unique(drawn)) == len(drawn)


def test_engines_see_the_same_augmentation():
    one, other = (run(experiment(lazily(1.0), kind)).rounds for kind in ("loop", "vectorised"))
    for key in ("loss", "train_loss"):
        assert [line[key] for line in one] == pytest.approx([line[key] for line in other], rel=1e-5)


def test_augmentation_is_the_same_after_a_resume(tmp_path):
    e = experiment(lazily(1.0))
    same(run(e), in_pieces(e, tmp_path, [1, 3]))


def test_generators_are_left_as_they_were():
    def states():
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    lazy, before = lazily(1.0), states()
    lazy.train.between(0, 5)
    assert states() == before


def test_the_cache_is_bounded():
    """It keeps the newest items; an item that is kept is not read again."""
    train = lazily(1.0, cache_mb=1).train
    train.items.cache_mb = 10 * 64 / 2**20  # ten images
    train.between(0, 30)
    assert len(train.items._kept) == 10
    train.items.dataset.read.clear()
    first = train.between(25, 30)[0]
    assert train.items.dataset.read == []
    assert torch.equal(train.take(torch.arange(25, 30), np.arange(5))[0], first)
    assert pickle.loads(pickle.dumps(train.items))._kept == {}  # it does not travel


def test_test_examples_are_not_augmented():
    lazy = lazily(augment=lambda image: image + 100)
    assert lazy.train.between(0, 60)[0].min() > 50
    assert lazy.test.between(0, 20)[0].max() < 50
    dataset, _ = fedtide.Data(name=lazy, test_share=0.5).deal(lambda _: [Group(4)], 1, 0)
    assert dataset.own.examples.between(0, 10)[0].max() < 50


def test_inputs_by_name_and_targets_without_an_attribute():
    lazy = fedtide.from_torch(Named(), Named(), lazy=True)
    assert (lazy.classes, lazy.shape) == (0, ())
    e = replace(experiment(lazy, model=Middle(), lr=0.05), task=fedtide.Regression())
    losses = [line["loss"] for line in run(e).rounds]
    assert losses[-1] < losses[0]


class Odd(Drawn):
    """The first image is smaller."""

    def __getitem__(self, place):
        image, target = super().__getitem__(place)
        return image[:, : 4 - (place == 0)], target


def test_mistakes():
    with pytest.raises(ConfigError, match="from_torch: lazy must be True with augment or cache_mb"):
        fedtide.from_torch(Drawn(4), Drawn(4), cache_mb=3)
    with pytest.raises(
        DataError, match=r"own.train: the dataset must have a length. Got Drawn without"
    ):
        fedtide.from_torch(Drawn(0), Drawn(4), lazy=True)
    odd = fedtide.from_torch(Odd(8), Odd(4), lazy=True)
    with pytest.raises(
        DataError, match=r"one shape. Got \[1, 4, 4\] at item 1, \[1, 3, 4\] before. Let"
    ):
        odd.train.between(0, 2)


def test_arrays_that_are_mapped_from_a_file(tmp_path):
    """They stay in the file, and results are those of the same arrays in memory."""
    inputs = INPUTS.reshape(60, 16)
    for name, array in {"inputs": inputs, "wide": inputs.astype(np.float64)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped, wide = (np.load(tmp_path / f"{n}.npy", mmap_mode="r") for n in ("inputs", "wide"))
    both = [fedtide.from_tensors((x, LABELS), (x[:9], LABELS[:9])) for x in (mapped, inputs)]
    assert both[0].train.inputs.data_ptr() == mapped.ctypes.data
    runs = [run(experiment(each, model=nn.Linear(16, 3))) for each in both]
    assert timeless(runs[0].rounds) == timeless(runs[1].rounds)
    with pytest.raises(
        DataError, match=r"mapped from a file must be torch.float32. Got torch.float64"
    ):
        fedtide.from_tensors((wide, LABELS), (wide, LABELS))


def test_a_checksum_looks_at_some_items_only():
    lazy = lazily()
    lazy.train.items.dataset.read.clear()
    assert lazy.checksum() == lazily().checksum()
    assert lazy.checksum() != lazily(1.0).checksum()
    assert len(lazy.train.items.dataset.read) <= 2 * 16


def test_a_study_and_processes_of_ray(tmp_path):
    """The settings say what was read; actors read the items of their clients themselves."""
    e = experiment(lazily(1.0))
    cell = Cell({}, e)
    outcome = run_study(Study(name="lazy", cells=(cell,), seeds=(0,)), tmp_path, jobs=1)
    data = outcome.folder.read_json("settings.json")["cells"][0]["data"]["name"]
    assert len(data["train"]["some"]) == 17
    spread = replace(e, engine=settings_of(kind="ray", actors=2, of="loop"))
    same(run(spread), run(e))
