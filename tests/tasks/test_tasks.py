"""Every kind of task: the same on all engines, the same as a plain loop of torch, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedtide
from fedtide.core.errors import ConfigError, DataError
from fedtide.run.kinds import KINDS
from fedtide.run.preflight import preflight
from fedtide.tasks.objective import Objective
from tests.tasks import worlds
from tests.worlds import settings_of, timeless

TASKS = sorted(KINDS[Objective])


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "continuous"])
@pytest.mark.usefixtures("double")
def test_engines_agree(kind, algorithm):
    one, many = (
        fedtide.run(experiment(kind, engine, algorithm=algorithm))
        for engine in ("loop", "vectorised")
    )
    torch.testing.assert_close(one.model.x, many.model.x)
    for a, b in zip(timeless(one.rounds), timeless(many.rounds), strict=True):
        assert a["loss"] == pytest.approx(b["loss"])
        assert a["train_loss"] == pytest.approx(b["train_loss"])


LOSSES = {  # as a user of torch writes them, means over a batch
    "classification": nn.CrossEntropyLoss(),
    "regression": nn.MSELoss(),
    "binary": lambda out, y: nn.BCEWithLogitsLoss()(out[:, 0], y.to(out)),
    "multilabel": lambda out, y: nn.BCEWithLogitsLoss()(out, y.to(out)),
    "tokens": lambda out, y: nn.CrossEntropyLoss(ignore_index=-100)(out.flatten(0, 1), y.flatten()),
}


def outputs_of(model, inputs):
    found = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return found["logits"] if isinstance(found, dict) else found


@pytest.mark.parametrize("kind", TASKS)
def test_training_is_that_of_a_plain_loop_of_torch(kind):
    """One client that passes over all its data in batches of 10, the last one smaller, with a penalty."""
    dataset, model = worlds.of(kind)
    train = fedtide.Train(model=model, epochs=1, batch_size=10, lr=0.1)
    e = experiment(kind, train=train, population=fedtide.Fixed(clients=1, rounds=2))
    history = fedtide.run(e)
    _, model = worlds.of(kind)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for t in range(2):
        for batch in batches(e, dataset, t):
            inputs, targets = dataset.train.take(batch)
            optimiser.zero_grad()
            LOSSES[kind](outputs_of(model, inputs), targets).backward()
            optimiser.step()
    inputs, targets = dataset.test.between(0, len(dataset.test))
    with torch.no_grad():
        loss = float(LOSSES[kind](outputs_of(model, inputs), targets))
    assert history.rounds[-1]["loss"] == pytest.approx(loss, rel=1e-6)
    for name, part in history.module().named_parameters():
        torch.testing.assert_close(part, model.get_parameter(name), rtol=1e-5, atol=1e-6)


def batches(e, dataset, t):
    """The batches of the only client in round t."""
    from fedtide.data.batches import ClientData

    _, holdings = e.data.deal(e.population.groups, 2, e.seed)
    data = ClientData(dataset.train, holdings, e.train, e.seed)
    ids = np.array([0])
    picks = data.picks(t, ids, data.steps(t, ids), "batch")
    for places, mask in zip(picks.places[0], picks.mask[0], strict=True):
        yield torch.from_numpy(places[mask])


def test_a_penalty_is_a_mean_over_examples_also_where_tokens_count():
    """FedProx as a penalty of the loss is FedProx as a direction, whatever the weights of the examples."""

    class Pull(fedtide.FedAvg):
        def penalty(self, y, out, batch, look, down, mine):
            return 0.5 * (y - down.x).square().sum()

    one = fedtide.run(experiment("tokens", algorithm=Pull()))
    other = fedtide.run(experiment("tokens", algorithm=fedtide.FedProx(mu=1.0)))
    torch.testing.assert_close(one.model.x, other.model.x, rtol=1e-4, atol=1e-6)


def test_a_loss_and_weights_of_your_own():
    """Weighted squares: in a batch their weighted mean, as in the test set."""

    def squares(outputs, targets):
        return weight(targets) * (outputs[:, 0] - targets).square()

    def weight(targets):
        return 1 + targets.abs()

    squares.weight = weight
    x, test = worlds.numbers(1, 30, 5), worlds.numbers(2, 10, 5)
    dataset = fedtide.from_tensors((x, x.sum(1)), (test, test.sum(1)))
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    e = experiment(
        "regression",
        task=fedtide.Regression(loss=squares),
        data=fedtide.Data(name=dataset),
        train=fedtide.Train(model=model, steps=1, batch_size=30, lr=0.1),
        population=fedtide.Fixed(clients=1, rounds=1),
    )
    history = fedtide.run(e)

    def mean(outputs, targets):
        return squares(outputs, targets).sum() / weight(targets).sum()

    expected = float(mean(model(x), x.sum(1)).detach())
    assert history.rounds[0]["train_loss"] == pytest.approx(expected, rel=1e-6)
    gradient = torch.autograd.grad(mean(model(x), x.sum(1)), list(model.parameters()))
    with torch.no_grad():
        for part, g in zip(model.parameters(), gradient, strict=True):
            part -= 0.1 * g
    found = float(mean(model(test), test.sum(1)).detach())
    assert history.rounds[0]["loss"] == pytest.approx(found, rel=1e-6)


def test_next_tokens_with_shift():
    """Targets are the sequence itself: the output at each place predicts the token after it."""
    outputs, targets = worlds.numbers(1, 2, 5, 7), worlds.tokens(2, 2, 5) % 7
    targets[0, 3:] = -100
    task = fedtide.Tokens(shift=True)
    expected = functional.cross_entropy(
        outputs[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), reduction="none"
    ).view(2, 4)
    torch.testing.assert_close(task.losses(outputs, targets), expected.sum(1))
    assert task.weight(targets).tolist() == [2, 4]


X, TEST = worlds.numbers(1, 12, 5), worlds.numbers(2, 6, 5)


def data(targets, test=None):
    return fedtide.Data(
        name=fedtide.from_tensors((X, targets), (TEST, test if test is not None else targets[:6]))
    )


@pytest.mark.parametrize(
    ("task", "targets", "model", "message"),
    [
        (
            fedtide.Classification(),
            X[:, 0],
            worlds.dense(2),
            "task.kind must be one for the targets of 'own', which are not labels, one whole number each. "
            "Got 'classification'. Use 'regression', 'multilabel' or 'tokens'.",
        ),
        (
            fedtide.Regression(),
            X[:, :2],
            worlds.dense(3),
            "train.model must be a module with 2 outputs, one for each number of a target of 'own'. "
            "Got 'outputs of shape [3] from Sequential'.",
        ),
        (
            fedtide.Binary(),
            torch.arange(12) % 3,
            worlds.dense(1),
            "data: training targets of 'own' must be 0 or 1. Got 2.",
        ),
        (
            fedtide.Binary(),
            X[:, :2],
            worlds.dense(2),
            "data: training targets of 'own' must be of shape [examples]. Got [12, 2].",
        ),
        (
            fedtide.Multilabel(),
            torch.arange(24).view(12, 2) % 2 - 1,
            worlds.dense(2),
            "data: training targets of 'own' must be 0 or 1. Got -1.",
        ),
        (
            fedtide.Multilabel(loss=fedtide.Bce(pos_weight=(1.0, 2.0, 3.0))),
            torch.arange(24).view(12, 2) % 2,
            worlds.dense(2),
            "task.loss.pos_weight must be one number for each of the model's 2 outputs. Got [1.0, 2.0, 3.0].",
        ),
        (
            fedtide.Classification(loss=fedtide.CrossEntropy(class_weights=(1.0, 2.0, 3.0))),
            torch.arange(12) % 2,
            worlds.dense(2),
            "task.loss.class_weights must be one number for each of the model's 2 outputs. "
            "Got [1.0, 2.0, 3.0].",
        ),
        (
            fedtide.Regression(loss=nn.MSELoss()),
            X[:, :1],
            worlds.dense(1),
            "task.loss must be one value per example: a tensor of shape (2,) for 2 examples. Got (). "
            'Write reduction="none", as in nn.CrossEntropyLoss(reduction="none").',
        ),
        (
            fedtide.Tokens(),
            torch.arange(24).view(12, 2),
            worlds.dense(4),
            "train.model must be a module with outputs [2, tokens] for each example of 'own'. "
            "Got 'outputs of shape [4] from Sequential'.",
        ),
        (
            fedtide.Tokens(),
            torch.arange(24).view(12, 2),
            nn.Sequential(worlds.dense(8), nn.Unflatten(1, (2, 4))),
            "data: training targets of 'own' must be tokens below the model's 4 outputs, or task.ignore = "
            "-100. Got 4.",
        ),
        (
            fedtide.Tokens(ignore=0),
            torch.zeros(12, 2, dtype=torch.long),
            nn.Sequential(worlds.dense(8), nn.Unflatten(1, (2, 4))),
            "data: training targets of 'own' must be tokens, not all of them task.ignore = 0. "
            "Got 'no others'.",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_round(task, targets, model, message):
    seen = []
    e = experiment(
        "regression", task=task, data=data(targets), train=fedtide.Train(model=model, steps=1)
    )
    with pytest.raises(ConfigError) as caught:
        fedtide.run(e, watch=seen.append)
    assert str(caught.value) == message
    assert seen == []
    with pytest.raises(ConfigError):
        preflight([("all", e)])


def test_targets_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match=r"own.train: targets must be finite. Got nan."):
        fedtide.from_tensors((X, X[:, 0] / 0 * 0), (TEST, TEST[:, 0]))
    broken = fedtide.from_tensors((X, X[:, :1]), (TEST, TEST[:, :1]))
    broken.test.targets[3] = torch.inf
    e = experiment(
        "regression",
        data=fedtide.Data(name=broken),
        train=fedtide.Train(model=worlds.dense(1), steps=1),
    )
    message = "data: test targets of 'own' must be finite numbers. Got inf."
    with pytest.raises(ConfigError) as caught:
        fedtide.run(e)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithm": "fedlc"},
            "algorithm must be one that works without labels, as the task 'regression' has",
        ),
        (
            {"algorithm": fedtide.LabelSmoothing(of=fedtide.Scaffold())},
            "Got 'LabelSmoothing'. Use another",
        ),
        (
            {"algorithm": "fedgh"},
            "Got 'FedGH'. Use another algorithm, or task.kind = 'classification'.",
        ),
        ({"algorithm": "m-feddisco"}, "Got 'ModifiedFedDisco'"),
        (
            {"algorithm": fedtide.Continuous(of=fedtide.FedNTD())},
            "algorithm must be one that works without",
        ),
        (
            {"algorithm": "moon"},
            "train.model must be in two halves, embed and head, for Moon, which compares",
        ),
        (
            {"start": fedtide.Similarity(pilot="good")},
            "start.pilot must be 'average', 'ema' or a file: the task",
        ),
        (
            {"attack": "label-flip"},
            "attack 'label-flip' must be used with targets that are labels, one whole",
        ),
        (
            {"evaluation": fedtide.Evaluation(fairness=True)},
            "evaluation.fairness must be false where examples",
        ),
        (
            {"participation": fedtide.Bernoulli(label_alpha=1.0)},
            "data must be examples with labels, one whole",
        ),
        (
            {"population": fedtide.Alternating(clients=2)},
            "population 'alternating' must have data with at least",
        ),
    ],
)
def test_what_needs_labels_says_so(changes, message):
    with pytest.raises(ConfigError) as caught:
        fedtide.run(experiment("regression", **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("partition", ["dirichlet", "shards", "sorted"])
def test_partitions_by_label_say_so(partition):
    e = experiment("regression")
    with pytest.raises(
        ConfigError, match=r"data.partition must be one that needs no labels, as targets of"
    ):
        fedtide.run(replace(e, data=replace(e.data, partition=partition)))
