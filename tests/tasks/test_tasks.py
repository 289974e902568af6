"""Every kind of task: the same on all engines, and the same as a plain loop of torch."""

import pytest
import torch

import fedtide
from fedtide.run.kinds import KINDS
from fedtide.tasks.objective import Objective
from tests.tasks import worlds
from tests.worlds import settings_of, timeless

TASKS = sorted(KINDS[Objective])


def experiment(kind, engine="loop", **settings):
    dataset, model = worlds.of(kind)
    given = {
        "task": KINDS[Objective][kind](),
        "train": fedtide.Train(model=model, steps=3, batch_size=4, lr=0.2),
        "population": fedtide.Fixed(clients=5, rounds=2),
        "data": fedtide.Data(name=dataset),
        "engine": settings_of(kind=engine, workers=1, device="cpu"),
        "seed": 3,
    }
    return fedtide.Experiment(**{**given, **settings})


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "continuous", "moon"])
def test_engines_agree(kind, algorithm):
    torch.set_default_dtype(torch.float64)
    try:
        one, many = (
            fedtide.run(experiment(kind, engine, algorithm=algorithm))
            for engine in ("loop", "vectorised")
        )
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(one.model.x, many.model.x)
    for a, b in zip(timeless(one.rounds), timeless(many.rounds), strict=True):
        assert a["loss"] == pytest.approx(b["loss"])
        assert a["train_loss"] == pytest.approx(b["train_loss"])
