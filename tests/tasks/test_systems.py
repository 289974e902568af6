"""The papers' four systems on numbers and on tokens, whose scores are better if they are smaller."""

import json
import math
import re
from itertools import pairwise

import pytest
import torch

import fedtide
from fedtide.algorithms import ALGORITHMS
from fedtide.core.errors import ConfigError
from fedtide.run.execute import run_study
from fedtide.run.study import Cell, Study
from tests.tasks import worlds

SESSIONS = ((0, 1, 2), (3, 4, 5), (0, 1, 2), (1, 2, 3))
STORES = {"capacity": (8, 12), "slots": 3, "chance": (0.4, 0.9), "drift": 0.0}
SYSTEMS = {
    "DIMC": {"start": "similarity"},
    "DIMC by drop": {"start": fedtide.Similarity(trigger=fedtide.Drop())},
    "soup": {"start": "soup"},
    "FAST": {"participation": fedtide.Fast(of=fedtide.Beta(rate=0.5), interval=2)},
    "FAST adaptive": {
        "participation": fedtide.Fast(of=fedtide.Beta(rate=0.5), adaptive=True, lambda_=5.0)
    },
    "FedAgg": {"algorithm": "fedagg"},
    "OSAFL": {"algorithm": fedtide.Osafl(server_lr=5.0), "stores": fedtide.Arriving(**STORES)},
}
SCORES = {"regression": "rmse", "tokens": "perplexity"}  # of both, less is better
LEARNING_RATES = {"regression": 0.1, "tokens": 1.0}


def counted():
    """Tokens that count upwards from a random one."""
    parts = []
    for seed, count in ((1, worlds.N), (2, worlds.TEST)):
        ids = (worlds.tokens(seed, count, 1) + torch.arange(worlds.PLACES)) % worlds.WORDS
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        parts.append((inputs, (ids + 1) % worlds.WORDS))
    return fedtide.from_tensors(*parts)


def experiment(kind, stores="static", lr=0.0, rounds=12, **system):
    dataset, model = worlds.of(kind)
    if kind == "tokens":
        dataset = counted()
    population = (
        fedtide.Pattern(clients=6, rounds=3, sessions=SESSIONS)
        if "start" in system
        else fedtide.Fixed(clients=6, rounds=rounds)
    )
    return fedtide.Experiment(
        task=fedtide.Regression(metrics=("rmse", "r2")) if kind == "regression" else "tokens",
        data=fedtide.Data(name=dataset, stores=stores),
        population=population,
        train=fedtide.Train(model=model, epochs=1, batch_size=8, lr=lr or LEARNING_RATES[kind]),
        **system,
    )


BOLD = r'data-title="{}"><span><strong>([^<]*)</strong>'


@pytest.mark.parametrize("kind", SCORES)
def test_the_four_systems(kind, tmp_path):
    """Each learns and does what is its own; the smallest score is the best one, in summary and report."""
    cells = [Cell({"system": name}, experiment(kind, **s)) for name, s in SYSTEMS.items()]
    folder, summary = run_study(Study(name=kind, cells=tuple(cells), seeds=(1,)), tmp_path, jobs=1)
    journals = {
        name: [json.loads(line) for line in path.read_text().splitlines()]
        for name, path in zip(SYSTEMS, sorted(folder.path.rglob("journal.jsonl")), strict=True)
    }
    for cell in summary["cells"]:
        scores = [line["score"] for line in journals[cell["settings"]["system"]]]
        assert scores[-1] < 0.8 * journals["DIMC"][0]["untrained_score"], cell["settings"]
        assert cell["metrics"]["best_score"]["mean"] == min(scores)
        assert cell["metrics"]["score"]["mean"] == pytest.approx(sum(scores[-5:]) / 5)
    check_that_each_does_its_own(journals)
    page = (folder.path / "report.html").read_text()
    assert f"{SCORES[kind]}: mean over the last 5 evaluations of a run; less is better." in page
    best = min(cell["metrics"]["score"]["mean"] for cell in summary["cells"])
    (bold,) = set(re.findall(BOLD.format(SCORES[kind]), page))
    assert float(bold) == pytest.approx(best, rel=1e-3)


def check_that_each_does_its_own(journals):
    def told(system, key):
        return [line[key] for line in journals[system] if key in line]

    assert len(told("DIMC", "start_weights")) > 0
    assert any(told("FAST", "snapshot"))
    assert len(told("FAST adaptive", "q")) == 12
    assert len({tuple(scores) for scores in told("OSAFL", "scores")}) > 1


def test_adaptive_snapshots_follow_the_loss():
    """They become likely where the training loss grows, relative to its size."""
    e = experiment("regression", lr=0.5, **SYSTEMS["FAST adaptive"])  # which makes it grow at times
    lines = fedtide.run(e).rounds
    expected, q = [], 0.0
    for before, now in pairwise(line["train_credit"] for line in lines):
        q = min(max(q + 5 * (before - now) / abs(before), 0), 1)
        expected.append(q)
    assert [line["q"] for line in lines][2:] == pytest.approx(expected[:-1])
    assert max(expected) > 0


NEED_LABELS = ("fedgh", "m-feddisco", "fedntd", "fedlc", "label-smoothing")
NEED_HALVES = ("moon", "fedbabu")  # a body and a head, which the models here do not have


@pytest.mark.parametrize("kind", SCORES)
def test_every_algorithm_runs_or_says_why_not(kind):
    refused = {}
    for name in ALGORITHMS:
        try:
            lines = fedtide.run(experiment(kind, algorithm=name, rounds=2)).rounds
        except ConfigError as error:
            refused[name] = str(error)
        else:
            assert all(math.isfinite(line["score"]) for line in lines)
    assert sorted(refused) == sorted(NEED_LABELS + NEED_HALVES)
    assert all("without labels" in refused[name] for name in NEED_LABELS)
    assert all("train.model must" in refused[name] for name in NEED_HALVES)
