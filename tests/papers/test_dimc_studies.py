"""The DIMC studies at paper scale: one reduced round of each runs on made-up data of the right shape."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedtide import Data, from_tensors, load, run
from fedtide.data.partition import Iid
from tests.worlds import settings_of

STUDIES = Path(__file__).parents[2] / "studies" / "papers" / "dimc"
SHAPES = {
    "svhn": (3, 32, 32),
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
    "tinyimagenet": (3, 64, 64),
}
CLASSES = {"svhn": 10, "cifar10": 10, "cifar100": 100, "tinyimagenet": 200, "ag-news": 4}


def made_up(name):
    rng = np.random.default_rng(0)
    targets = torch.arange(CLASSES[name])
    if name == "ag-news":
        inputs = torch.from_numpy(rng.integers(0, 30522, (len(targets), 64)))
        inputs[0, 0] = 30521
    else:
        inputs = torch.from_numpy(
            rng.integers(0, 256, (len(targets), *SHAPES[name]), dtype=np.uint8)
        )
    return from_tensors((inputs, targets), (inputs, targets))


@pytest.mark.parametrize("name", CLASSES)
def test_one_reduced_round(name):
    e = load(STUDIES / f"{name}.toml").cells[0].experiment
    small = replace(
        e,
        data=Data(name=made_up(name), partition=Iid()),
        population=replace(e.population, clients=2, sessions=2, rounds=1),
        train=replace(e.train, steps=1, batch_size=4, lr=1e-3),
        engine=settings_of(workers=1, device="cpu"),
    )
    history = run(small)
    assert len(history.rounds) == 2
    assert history.rounds[1]["gradient_rounds"] == 1


def test_pixels_are_scaled_as_the_authors_do():
    """The dataset's mean with another std for CIFAR-10, ImageNet's numbers for Tiny-ImageNet."""
    names = ("cifar10", "tinyimagenet")
    cifar, tiny = (load(STUDIES / f"{name}.toml").cells[0].experiment.data for name in names)
    assert (cifar.mean, cifar.std) == ((), (0.2023, 0.1994, 0.2010))
    assert (tiny.mean, tiny.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_scaffold_as_the_authors_have_it():
    """One client, K = 2, lr = 1/2, y - x = 3: x moves by lr (y - x) = 1.5; dc = -c - 3 / (2 * 1/2) = -4."""
    cells = load(STUDIES / "mnist-table.toml").cells
    algorithm = next(c.experiment.algorithm for c in cells if "SCAFFOLD" in c.settings["case"])
    from fedtide.core.types import Cohort, Walk

    server = algorithm.init(torch.tensor([1.0]), None)._replace(c=torch.tensor([1.0]))
    walk = Walk(*map(torch.tensor, (2.0, 0.5, 2.0, 0.0)))
    mine = algorithm.memory(server)
    up, mine = algorithm.report(torch.tensor([4.0]), walk, server, mine)
    assert (up.dy.item(), up.dc.item(), mine.c.item()) == (3.0, -4.0, -4.0)
    stacked = type(up)(*(field[None] for field in up))
    cohort = Cohort(torch.tensor([0]), torch.tensor([1.0]), Walk(*(f[None] for f in walk)), 1, t=0)
    after = algorithm.aggregate(server, stacked, cohort)
    assert (after.x.item(), after.c.item()) == (2.5, -3.0)
    assert algorithm.direction(torch.tensor([7.0]), None, 0, server, mine).item() == 7.0


def test_continuous_as_the_authors_have_it():
    """Zeros teach the sessions that begin with the untrained model, later ones the last session's model."""
    algorithm = load(STUDIES / "mnist-continuous.toml").cells[0].experiment.algorithm
    untrained, trained = torch.ones(3), torch.arange(3.0)
    context = None  # FedAvg does not look at it
    server = algorithm.init(untrained, context)
    teachers = []
    for x in (untrained, untrained, trained, 2 * trained):
        server = algorithm.restart(server, x, context)
        teachers.append(algorithm.broadcast(server).teacher.tolist())
    assert teachers == [[0, 0, 0], [0, 0, 0], trained.tolist(), (2 * trained).tolist()]
