"""Scores: those of scikit-learn on the whole test set, and how runs are judged by them."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import fedtide
from fedtide.core.errors import ConfigError
from fedtide.measure.metrics import metrics
from fedtide.measure.recovery import Recovery, against
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.targets import common_target, to_target
from fedtide.run.kinds import KINDS
from fedtide.tasks.objective import Objective
from fedtide.tasks.scores import computed
from tests.tasks.test_tasks import experiment
from tests.tasks.worlds import of


def answered(kind, history):
    """Outputs of the final model on the test set, and the targets."""
    dataset, _ = of(kind)
    inputs, targets = dataset.test.between(0, len(dataset.test))
    with torch.no_grad():
        found = history.module()(**inputs) if isinstance(inputs, dict) else history.module()(inputs)
    return found["logits"] if isinstance(found, dict) else found, targets


def classification(outputs, y):
    p, chosen = outputs.double().softmax(1).numpy(), outputs.argmax(1)
    return {
        "auroc": np.mean([sk.roc_auc_score(y == k, p[:, k]) for k in (0, 1)]),
        "average-precision": np.mean([sk.average_precision_score(y == k, p[:, k]) for k in (0, 1)]),
        "f1-macro": sk.f1_score(y, chosen, average="macro"),
        "f1-micro": sk.f1_score(y, chosen, average="micro"),
        "f1-weighted": sk.f1_score(y, chosen, average="weighted"),
        "precision": sk.precision_score(y, chosen, average="macro"),
        "recall": sk.balanced_accuracy_score(y, chosen),
        "matthews": sk.matthews_corrcoef(y, chosen),
        "accuracy": sk.accuracy_score(y, chosen),
        "loss": sk.log_loss(y, p),
    }


def binary(outputs, y):
    p = outputs[:, 0].double().sigmoid().numpy()
    return {
        "auroc": sk.roc_auc_score(y, p),
        "average-precision": sk.average_precision_score(y, p),
        "f1": sk.f1_score(y, p > 0.5),
        "precision": sk.precision_score(y, p > 0.5),
        "recall": sk.recall_score(y, p > 0.5),
        "matthews": sk.matthews_corrcoef(y, p > 0.5),
        "accuracy": sk.accuracy_score(y, p > 0.5),
        "loss": sk.log_loss(y, p),
    }


def multilabel(outputs, y):
    p = outputs.double().sigmoid().numpy()
    return {
        "auroc": sk.roc_auc_score(y, p, average="macro"),
        "average-precision": sk.average_precision_score(y, p, average="macro"),
        "f1-macro": sk.f1_score(y, p > 0.5, average="macro"),
        "f1-micro": sk.f1_score(y, p > 0.5, average="micro"),
        "exact-match": sk.accuracy_score(y, p > 0.5),
    }


def regression(outputs, y):
    return {
        "r2": sk.r2_score(y, outputs),
        "mse": sk.mean_squared_error(y, outputs),
        "rmse": math.sqrt(sk.mean_squared_error(y, outputs)),
        "mae": sk.mean_absolute_error(y, outputs),
        "loss": sk.mean_squared_error(y, outputs),
    }


def tokens(outputs, y):
    known = y != -100
    p = outputs[known].double().softmax(1).numpy()
    loss = -np.log(p[np.arange(len(p)), y[known]]).mean()
    chosen = p.argmax(1)
    return {
        "perplexity": math.exp(loss),
        "loss": loss,
        "f1-micro": sk.f1_score(y[known], chosen, average="micro"),
        "f1-macro": sk.f1_score(y[known], chosen, average="macro"),
    }


OUTSIDE = {f.__name__: f for f in (classification, binary, multilabel, regression, tokens)}


NAMES = {
    "classification": "auroc average-precision f1-macro f1-micro f1-weighted precision recall matthews "
    "accuracy loss",
    "binary": "average-precision auroc f1 precision recall matthews accuracy loss",
    "multilabel": "f1-macro f1-micro auroc average-precision exact-match",
    "regression": "r2 mse rmse mae loss",
    "tokens": "perplexity loss f1-micro f1-macro",
}


@pytest.mark.parametrize("kind", sorted(OUTSIDE))
def test_scores_are_those_of_scikit_learn(kind):
    names = NAMES[kind].split()
    longer = fedtide.Fixed(clients=5, rounds=8)  # until every label is predicted
    e = experiment(kind, task=KINDS[Objective][kind](metrics=tuple(names)), population=longer)
    history = fedtide.run(e)
    expected = OUTSIDE[kind](*answered(kind, history))
    line = history.rounds[-1]
    assert set(names) == set(expected)
    assert line["metrics"] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    if names[0] != "accuracy":
        assert line["score"] == line["metrics"][names[0]]
        assert history.metrics()["score"] == pytest.approx(
            np.mean([line["score"] for line in history.rounds[-5:]])
        )
    assert (line["accuracy"] is not None) == (kind in ("classification", "binary"))


def test_a_score_by_a_function_and_by_an_object():
    """A function sees all outputs at once; an object of torchmetrics sees probabilities."""
    from torchmetrics.classification import BinaryAUROC

    def spread(outputs, targets):
        assert (outputs.shape, targets.shape) in [((n, 1), (n,)) for n in (32, 40)]  # a trial, all
        return outputs.std()

    spread.larger = False
    e = experiment("binary", task=fedtide.Binary(metrics=(spread, BinaryAUROC(), "loss")))
    history = fedtide.run(e)
    outputs, targets = answered("binary", history)
    found = history.rounds[-1]["metrics"]
    assert found == pytest.approx(
        {
            "spread": float(outputs.std()),
            "binary-auroc": sk.roc_auc_score(targets, outputs[:, 0]),
            "loss": history.rounds[-1]["loss"],
        },
        rel=1e-5,
    )
    assert Scale.all_of(e.task) == [
        Scale("spread", False),
        Scale("binary-auroc", True),
        Scale("loss", False),
    ]


def test_labels_that_no_test_example_has_are_left_out():
    """torchmetrics counts their AUROC as 0."""
    outputs = torch.tensor([[0.1, 0.2, 5.0], [0.9, 0.3, 4.0], [0.3, 0.6, 3.0], [0.2, 0.9, 9.0]])
    targets = torch.tensor([0, 0, 1, 1])
    meter = fedtide.Auroc().meter("multiclass", 3)
    meter.update(outputs.softmax(1), targets)
    p = outputs.softmax(1).numpy()
    expected = np.mean([sk.roc_auc_score(targets == k, p[:, k]) for k in (0, 1)])
    assert computed(fedtide.Auroc(), meter) == pytest.approx(expected)


def test_a_score_that_is_not_defined_is_null():
    """The AUROC of one label: the round counts as not tested, the loss stays."""
    targets, x = torch.zeros(6, dtype=torch.long), torch.randn(6, 5)
    dataset = fedtide.from_tensors((x, torch.arange(6) % 2), (x, targets), classes=2)
    e = experiment(
        "binary",
        task=fedtide.Binary(metrics=("average-precision",)),
        data=fedtide.Data(name=dataset),
    )
    history = fedtide.run(e)
    assert history.rounds[-1]["score"] is None
    assert history.rounds[-1]["loss"] > 0


def test_r2_of_a_single_example_is_not_defined():
    """torchmetrics raises an error, which would end a run where a client has one test example."""
    meter = fedtide.R2().meter("regression", 1)
    meter.update(torch.tensor([1.0]), torch.tensor([2.0]))
    assert computed(fedtide.R2(), meter) is None
    meter.update(torch.tensor([2.0, 3.0]), torch.tensor([2.5, 3.0]))
    assert computed(fedtide.R2(), meter) == pytest.approx(sk.r2_score([2, 2.5, 3], [1, 2, 3]))


@pytest.mark.parametrize(
    ("task", "metrics_", "message"),
    [
        (
            "Regression",
            ("auroc",),
            "task.metrics must be scores for answers of the form 'regression'. Got 'auroc'.",
        ),
        (
            "Binary",
            ("r2",),
            "Use some of accuracy, auroc, average-precision, calibration-error, f1, loss, matthews",
        ),
        (
            "Classification",
            ("perplexities",),
            "task.metrics must be scores, by name or from Python. Got 'perplexities'.",
        ),
        ("Classification", ("auroc", "auroc"), "task.metrics must be without repetition."),
        (
            "Multilabel",
            ("accuracy",),
            "Got 'accuracy'. Use some of auroc, average-precision, exact-match",
        ),
    ],
)
def test_scores_that_do_not_fit_a_task_are_refused(task, metrics_, message):
    with pytest.raises(ConfigError) as caught:
        getattr(fedtide, task)(metrics=metrics_)
    assert message in str(caught.value)


def broken(outputs, targets):
    raise ValueError("no such thing")


def many(outputs, targets):
    return outputs[:2, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            broken,
            "task.metrics: broken must work with outputs of shape [1] for each example. Got ValueError: no",
        ),
        (many, "task.metrics: many must be one number. Got [2]."),
    ],
)
def test_a_score_that_fails_is_refused_before_the_first_round(function, message):
    seen = []
    with pytest.raises(ConfigError) as caught:
        fedtide.run(
            experiment("binary", task=fedtide.Binary(metrics=(function,))), watch=seen.append
        )
    assert message in str(caught.value)
    assert seen == []


def lines(scores, untrained=10.0):
    """A journal from the scores of each session."""
    found = []
    for number, session in enumerate(scores):
        for r, score in enumerate(session):
            line = {"t": len(found), "session": number, "round_in_session": r, "accuracy": None}
            line |= {
                "score": score,
                "untrained_score": untrained,
                "loss": score,
                "cohort": 3,
                "steps": 6,
            }
            found.append(line | {"bytes_up": 10, "bytes_down": 20, "seconds": {"train": 1.0}})
    return found


PERPLEXITY = Scale("perplexity", larger=False)


def test_less_is_better():
    """The reference falls from 10 to 2: 95 % of the way is 2.4, reached in round 2 there, in round 3 here."""
    here, there = lines([[9, 8], [6, 4, 2.4]]), lines([[9, 8], [5, 2.2, 2]])
    found = against(here, there, Recovery(), 10, PERPLEXITY).metrics
    assert found["recovery_rounds"] == [3]
    assert found["accumulated_gain"] == pytest.approx([1 + 1.8 + 0.4])
    told = metrics(here, 1, PERPLEXITY)
    assert (told["best_score"], told["transition_score"]) == (2.4, [6])
    assert "accuracy" not in told


def test_a_common_target_is_easy_to_reach():
    """The worse of the two best scores, 2.43, rounded to the easier side."""
    quick, slow = lines([[9, 4, 2]]), lines([[9, 6, 2.43]])
    assert common_target([quick, slow], PERPLEXITY) == 2.5
    assert to_target(slow, 2.5, PERPLEXITY)["rounds_to_target"] == 3
    r2 = Scale("r2", larger=True)
    assert common_target([lines([[0.1, 0.437]]), lines([[0.2, 0.9]])], r2) == 0.43


def test_accuracies_are_aimed_at_from_zero():
    assert ACCURACY.floor([{}]) == 0.0
