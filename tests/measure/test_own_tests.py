"""Clients on their own test examples: against scikit-learn and a plain loop of torch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score
from torch import nn

import fedtide
from fedtide.core.errors import ConfigError
from fedtide.measure.evaluation import Personalise
from fedtide.measure.metrics import metrics
from fedtide.measure.own_tests import told
from fedtide.measure.scale import Scale
from fedtide.run.loop import run
from tests.worlds import settings_of, timeless

CLIENTS = 5


def dataset(regression=False):
    """Clients whose targets differ by a shift, each with 30 training and 12 test examples of its own."""
    rng = np.random.default_rng(4)
    keys, test_keys = (np.repeat(np.arange(CLIENTS), n) for n in (30, 12))
    w = rng.normal(size=(4, 3))

    def part(owners):
        inputs = rng.normal(size=(len(owners), 4)).astype(np.float32)
        outputs = inputs @ w + owners[:, None] * [0.5, 0, -0.5]
        return inputs, outputs[:, 0].astype(np.float32) if regression else outputs.argmax(1)

    return fedtide.from_tensors(part(keys), part(test_keys), keys=keys, test_keys=test_keys)


def experiment(data, kind="loop", model="linear", task="classification", epochs=1, **evaluation):
    evaluation = {"clients": "all", **evaluation}
    return fedtide.Experiment(
        data=fedtide.Data(name=data, partition="natural"),
        population=fedtide.Fixed(clients=CLIENTS, rounds=3),
        train=fedtide.Train(model=model, epochs=1, batch_size=8, lr=0.1),
        task=task,
        engine=settings_of(kind=kind, workers=2),
        evaluation=fedtide.Evaluation(personalise=Personalise(epochs=epochs), **evaluation),
    )


def mine(data, client, part="test"):
    """A client's own examples."""
    keys, examples = (data.test_keys, data.test) if part == "test" else (data.keys, data.train)
    inputs, targets = examples.take(torch.from_numpy(np.flatnonzero(keys == client)))
    return inputs, targets


@pytest.mark.parametrize("kind", ["loop", "vectorised", "compiled", "ray"])
def test_accuracies_are_those_of_scikit_learn(kind):
    data = dataset()
    history = run(experiment(data, kind))
    found, module = history.rounds[-1]["client_scores"], history.module()
    for client, score in zip(found["ids"], found["scores"], strict=True):
        inputs, targets = mine(data, client)
        with torch.no_grad():
            assert score == pytest.approx(accuracy_score(targets, module(inputs).argmax(1)))
    assert found["clients"] == CLIENTS
    assert found["mean"] == pytest.approx(np.mean(found["scores"]))
    assert found["spread"] == pytest.approx(np.std(found["scores"]))
    assert found["worst"] == min(found["scores"])  # a tenth of five clients is one
    assert found["personal"]["gain"] == pytest.approx(found["personal"]["mean"] - found["mean"])


@pytest.mark.parametrize("kind", ["loop", "vectorised"])
def test_scores_that_are_no_means_are_computed_client_by_client(kind):
    data = dataset(regression=True)
    history = run(experiment(data, kind, task=fedtide.Regression(metrics=("r2",))))
    found, module = history.rounds[-1]["client_scores"], history.module()
    for client, score in zip(found["ids"], found["scores"], strict=True):
        inputs, targets = mine(data, client)
        with torch.no_grad():
            assert score == pytest.approx(r2_score(targets, module(inputs)[:, 0]), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "model"),
    [(kind, "linear") for kind in ("loop", "vectorised", "compiled")]
    + [(kind, "norm") for kind in ("loop", "vectorised")],
)
def test_fine_tuning_is_a_plain_loop(kind, model):
    """Two epochs of SGD from the global model; buffers of a BatchNorm are the client's own then."""
    data = dataset()
    if model == "norm":
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    e = experiment(data, kind, model, epochs=2)
    e = replace(e, train=replace(e.train, batch_size=64))  # whole epochs: no order of batches
    history = run(e)
    found = history.rounds[-1]["client_scores"]["personal"]
    for client, score in zip(found["ids"], found["scores"], strict=True):
        module = history.module().train()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        inputs, targets = mine(data, client, "train")
        for _ in range(2):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            optimiser.step()
        inputs, targets = mine(data, client)
        with torch.no_grad():
            assert score == pytest.approx(accuracy_score(targets, module.eval()(inputs).argmax(1)))


def test_tests_change_nothing_else():
    """The rounds are those of a run without such tests; SCAFFOLD's memories stay as they are."""
    e = replace(experiment(dataset()), algorithm=fedtide.Scaffold())
    bare = replace(e, evaluation=fedtide.Evaluation())
    lines = [
        {k: v for k, v in line.items() if k != "client_scores"} for line in timeless(run(e).rounds)
    ]
    assert lines == timeless(run(bare).rounds)


def test_clients_with_buffers_of_their_own():
    """The global vector is tested with each client's own statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    e = experiment(dataset(), "vectorised", model)
    local = replace(e, train=replace(e.train, buffers="local"))
    scores = [run(each).rounds[-1]["client_scores"] for each in (e, local)]
    assert scores[0]["scores"] != scores[1]["scores"]
    assert scores[1] == run(local).rounds[-1]["client_scores"]


def test_some_clients_are_drawn_anew_each_round():
    lines = run(experiment(dataset(), clients=2)).rounds
    assert [line["client_scores"]["clients"] for line in lines] == [2, 2, 2]
    assert len({tuple(line["client_scores"]["ids"]) for line in lines}) > 1
    assert set(metrics(lines)) >= {"client_mean", "client_worst", "personal_mean", "personal_gain"}


def test_without_owners_a_proxy_is_named():
    digits = fedtide.Evaluation(clients="all", fairness=True)
    e = fedtide.Experiment(
        data=fedtide.Data(partition="shards"),
        population=fedtide.Fixed(clients=4, rounds=1),
        train=fedtide.Train(steps=2),
        evaluation=digits,
    )
    line = run(e).rounds[-1]
    assert line["client_scores"]["proxy"]
    assert line["fairness"]["proxy"]
    assert line["client_scores"]["mean"] == pytest.approx(
        line["fairness"]["groups"]["all"]["accuracy"]
    )
    assert {"proxy_client_mean", "proxy_client_worst"} <= set(metrics([line]))
    own = replace(e, data=replace(e.data, test_share=0.2))
    line = run(own).rounds[-1]
    assert "proxy" not in line["client_scores"]
    assert not line["fairness"]["proxy"]
    assert line["client_scores"]["mean"] == pytest.approx(
        line["fairness"]["groups"]["all"]["accuracy"]
    )


def test_the_worst_are_those_with_the_largest_loss():
    scores, ids = np.arange(20.0), np.arange(20)
    assert told(ids, scores, larger=True)["worst"] == 0.5
    assert told(ids, scores, larger=False)["worst"] == 18.5
    some = told(ids, np.where(scores < 3, np.nan, scores), larger=True)
    assert (some["clients"], some["ids"][0], sum(some["histogram"]["clients"])) == (17, 3, 17)
    assert told(ids[:1], np.array([np.nan]), larger=True) == {"clients": 0}
    assert Scale.all_of(fedtide.Regression())[0].larger is False


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": -1}, r"evaluation.clients must be a number of clients, or 'all'\. Got -1"),
        (
            {"clients": "some"},
            r"evaluation.clients must be a number of clients, or 'all'\. Got 'some'",
        ),
        (
            {"clients": 0},
            r"evaluation.clients must be a number .* with evaluation.personalise",
        ),
    ],
)
def test_settings(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        experiment(dataset(), **changes)


def test_own_tests_need_examples():
    data = replace(dataset(regression=True), test_keys=None)
    e = experiment(data, task="regression")
    with pytest.raises(
        ConfigError, match=r"evaluation.clients must be 0 where clients .*test_share"
    ):
        run(e)
    e = experiment(replace(dataset(), test_keys=None))
    with pytest.raises(
        ConfigError, match=r"evaluation.personalise must be left out where clients have no"
    ):
        run(e)
