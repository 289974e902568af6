"""Whole runs: FAST's two ends, FAST under other algorithms, every process, and text on the loop engine."""

import numpy as np
import pytest
import torch

from fedtide.config import study
from fedtide.core.types import Dataset, Examples
from fedtide.data.partition import Natural
from fedtide.data.source import Data
from fedtide.models.text import CharLstm
from fedtide.population.laws import Beta
from fedtide.population.participation import PARTICIPATION
from fedtide.population.sessions import Fixed
from fedtide.population.snapshot import Fast
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run
from fedtide.training.optimisers import Adam
from fedtide.training.train import Train

BASE = {
    "data": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.1}},
    "population": {"kind": "fixed", "clients": 20, "rounds": 6},
    "train": {"steps": 2, "lr": 0.1},
    "evaluation": {"every": 3},
}


def ran(participation, seed=3, **sections):
    table = BASE | {"participation": participation, "seed": seed} | sections
    return run(study("test", table).runs[0].experiment)


def assert_same_run(one, other):
    assert torch.equal(one.model.x, other.model.x)
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert (a["clients"], a["accuracy"], a["train_loss"]) == (
            b["clients"], b["accuracy"], b["train_loss"]
        )  # fmt: skip


@pytest.mark.parametrize("inner", ["beta", "weibull", "markov", "diurnal"])
def test_the_ends_of_fast(inner):
    """q = 0 is the inner process and q = 1 is uniform: the same model, bit for bit."""
    assert_same_run(ran({"kind": "fast", "of": inner, "q": 0.0}), ran(inner))
    uniform = ran({"kind": "uniform", "rate": 0.1})
    assert_same_run(ran({"kind": "fast", "of": inner, "q": 1.0}), uniform)


@pytest.mark.parametrize(
    "algorithm", ["fedprox", "scaffold", "feddyn", "mifa", "fedvarp", "fedau", "afa-cs"]
)
def test_fast_composes_with_algorithms(algorithm):
    fast = {"kind": "fast", "of": {"kind": "beta", "rate": 0.2}, "q": 0.5, "rate": 0.2}
    population = BASE["population"] | {"rounds": 30}
    history = ran(fast, algorithm=algorithm, population=population, train={"steps": 5, "lr": 0.1})
    assert {line["snapshot"] for line in history.rounds} == {True, False}
    assert history.metrics()["accuracy"] > 0.3  # ten labels: chance is 0.1


def test_adaptive_fast_listens_to_the_run():
    """q of each round follows from the training accuracies before it, line by line of the journal."""
    fast = {"kind": "fast", "of": {"kind": "beta", "rate": 0.2}, "adaptive": True, "lambda": 7.0}
    population = BASE["population"] | {"rounds": 15}
    lines = ran(fast, population=population).rounds
    q = before = 0.0
    for line in lines:
        assert line["q"] == pytest.approx(q)
        q = min(1, max(0, q + 7 * (before - line["train_accuracy"])))
        before = line["train_accuracy"]
    assert any(line["snapshot"] for line in lines)


@pytest.mark.parametrize("kind", [k for k in PARTICIPATION if k not in ("trace", "phones")])
def test_every_process_runs(kind):
    settings = {"uniform": {"clients": 3}, "regularised": {"rate": 0.2}}.get(kind, {})
    lines = ran({"kind": kind, **settings}).rounds
    assert len(lines) == 6
    for line in lines:
        assert line["clients"] == sorted(set(line["clients"]))


def test_a_trace_runs(tmp_path):
    """Rounds without clients leave the model as it is."""
    file = tmp_path / "trace.csv"
    file.write_text("client,start,end\n0,0,600\n7,600,1200\n3,1800,2400\n")
    lines = ran({"kind": "trace", "file": str(file)}).rounds
    assert [line["clients"] for line in lines] == [[0], [7], [], [3], [0], [7]]
    assert [line["available"] for line in lines] == [1, 1, 0, 1, 1, 1]
    assert lines[2]["train_accuracy"] is None


def test_characters_on_the_loop_engine():
    """A tiny text of three roles: an LSTM learns to say what comes next."""
    text = np.array([[n % 4, (n + 1) % 4, (n + 2) % 4] for n in range(60)])
    inputs, targets = torch.tensor(text, dtype=torch.int16), torch.tensor((text[:, 0] + 3) % 4)
    roles = np.arange(60) % 3
    said = Dataset("tiny", Examples(inputs, targets), Examples(inputs, targets), 4, roles, 4)
    model = CharLstm(embedding=4, hidden=8, layers=2, dropout=0.0)
    experiment = Experiment(
        data=Data(name=said, partition=Natural()),
        population=Fixed(clients=3, rounds=20),
        participation=Fast(of=Beta(rate=0.5), q=0.5, clients=2),
        train=Train(epochs=2, lr=0.05, batch_size=10, model=model, optimiser=Adam()),
    )
    history = run(experiment)
    assert history.engine.startswith("loop")
    assert history.metrics()["accuracy"] > 0.9
