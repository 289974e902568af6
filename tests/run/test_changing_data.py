"""Whole runs on data that change: empty stores, the shift probe, the video task, the Genie."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.osafl import Osafl
from fedtide.data.stores import Arriving
from fedtide.data.video import Video
from fedtide.measure.evaluation import Evaluation
from fedtide.models.dense import Mlp
from fedtide.models.osafl import VideoLstm
from fedtide.population.sessions import Fixed
from fedtide.run.world import World
from tests.worlds import settings_of

SMALL = Experiment(
    data=Data(stores=Arriving(capacity=(20, 40), slots=8, chance=(0.5, 1.0))),
    population=Fixed(clients=8, rounds=5),
    algorithm=Osafl(server_lr=2.0),
    train=Train(steps=2, batch_size=8, lr=0.1),
    engine=settings_of(workers=1, device="cpu"),
    seed=3,
)
VIDEO = replace(
    SMALL,
    data=Video(catalogue="synthetic", test=20, stores=Arriving(capacity=(20, 40), slots=8)),
    train=Train(model=Mlp(hidden=(8,)), steps=2, batch_size=8, lr=0.003),
)


def without_clock(history):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in history.rounds]


@pytest.mark.portable
@pytest.mark.parametrize("e", [SMALL, VIDEO], ids=["digits", "video"])
def test_engines_and_repetitions_agree(e):
    loop, again, vectorised = (
        run(replace(e, engine=settings_of(kind=kind, workers=1, device="cpu")))
        for kind in ("loop", "loop", "vectorised")
    )
    assert without_clock(loop) == without_clock(again)
    torch.testing.assert_close(loop.model.x, vectorised.model.x, atol=1e-5, rtol=1e-5)


def test_changing_stores_change_the_run():
    kept = replace(SMALL, data=replace(SMALL.data, stores=replace(SMALL.data.stores, slots=0)))
    changing, still = run(SMALL), run(kept)
    assert torch.equal(run(SMALL).model.x, changing.model.x)
    assert not torch.equal(changing.model.x, still.model.x)


def test_clients_with_empty_stores_are_counted_and_join_later():
    """Empty at first: nobody takes part in round 0 and the model stays; later some do."""
    stores = Arriving(capacity=(20, 20), initial=0.0, slots=1, chance=(0.5, 0.5))
    history = run(replace(SMALL, data=Data(stores=stores)))
    first, *later = history.rounds
    assert (first["cohort"], first["absent"], first["clients"]) == (0, 8, [])
    assert first["train_loss"] is None
    assert 0.0 <= first["accuracy"] <= 1.0
    assert all(line["cohort"] + line["absent"] == 8 for line in later)
    assert 0 < later[0]["cohort"] < 8
    assert later[-1]["cohort"] >= later[0]["cohort"]


def test_a_run_in_which_nobody_ever_has_data_keeps_its_model():
    stores = Arriving(capacity=(20, 20), initial=0.0, slots=0)
    history = run(replace(SMALL, data=Data(stores=stores)))
    assert [line["cohort"] for line in history.rounds] == [0] * 5
    assert len({line["accuracy"] for line in history.rounds}) == 1


def test_labels_that_arrive_later_are_tested_from_the_start():
    """Stores of one example each: the test set still has all ten labels."""
    stores = Arriving(capacity=(1, 1), slots=3, chance=(1.0, 1.0))
    e = replace(SMALL, data=Data(stores=stores))
    with World.build(e) as world:
        world.enter(e.population.at(0))
        tested = world.test.targets
    assert len(torch.unique(tested)) == 10


def test_shift_of_static_data_is_zero():
    e = replace(SMALL, data=Data(), evaluation=Evaluation(probes=("shift",)))
    for line in run(e).rounds:
        assert line["shift"] == [0.0] * 8


@pytest.mark.portable
def test_shift_by_hand():
    """Definition 1 at the model before round 1: autograd on a plain linear layer says the same."""
    e = replace(SMALL, evaluation=Evaluation(probes=("shift",)), algorithm=FedAvg())
    first, second = run(replace(e, population=Fixed(clients=8, rounds=2))).rounds
    assert first["shift"] == [0.0] * 8
    before = run(replace(e, population=Fixed(clients=8, rounds=1))).model.x
    with World.build(e) as world:
        holdings, layout = world.engine.data.holdings, world.layout

        def gradient(client, t):
            x = before.clone().requires_grad_()
            parts = layout.unpack(x)
            weight, bias = (parts[name] for name in layout.names)
            held = torch.from_numpy(holdings.held(t, np.array([client])))
            inputs, targets = world.dataset.train.take(held)
            loss = cross_entropy(inputs.flatten(1) @ weight.T + bias, targets)
            return torch.autograd.grad(loss, x)[0]

        expected = [float((gradient(u, 0) - gradient(u, 1)).square().sum()) for u in range(8)]
    assert second["shift"] == pytest.approx(expected, rel=1e-3, abs=1e-7)
    assert max(expected) > 1e-3


def test_the_genie_is_one_client():
    genie = replace(
        VIDEO,
        data=replace(VIDEO.data, users=8),
        population=Fixed(clients=1, rounds=5),
        algorithm=FedAvg(),
    )
    history = run(genie)
    assert [line["cohort"] for line in history.rounds] == [1] * 5
    with pytest.raises(ValueError, match=r"population\.clients"):
        run(replace(genie, population=Fixed(clients=3, rounds=5)))


def test_the_history_form_trains_an_lstm():
    e = replace(
        VIDEO,
        data=replace(VIDEO.data, form="history", window=5),
        train=replace(VIDEO.train, model=VideoLstm(embedding=4, hidden=6, layers=2)),
        population=Fixed(clients=4, rounds=2),
    )
    assert len(run(e).rounds) == 2
