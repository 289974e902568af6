"""The OSAFL studies, and the study with everything in it: one reduced run of each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedtide import load, run
from fedtide.core.types import Work
from fedtide.data.stores import Arriving
from fedtide.models import MODELS
from tests.worlds import settings_of

STUDIES = Path(__file__).parents[2] / "studies"
PAPER = STUDIES / "papers" / "osafl"
# Published: clients that are stragglers in at least half of the rounds.
STRAGGLERS = {"SqueezeNet": 0.22, "CNN": 0.34, "LSTM": 0.51, "FCN": 0.72}


def reduced(e):
    stores = Arriving(capacity=(5, 9), slots=4, chance=(0.5, 0.8))
    alone = e.population.clients == 1
    return replace(
        e,
        data=replace(e.data, stores=stores, test=2, users=3 if alone else 0),
        population=replace(e.population, clients=1 if alone else 3, rounds=2),
        train=replace(e.train, steps=1, batch_size=2, lr=1e-3),
        engine=settings_of(workers=1, device="cpu"),
    )


@pytest.mark.parametrize(
    "path", sorted(PAPER.glob("video-*-small.toml")), ids=lambda path: path.stem
)
def test_small_studies_run(path):
    cells = load(path).cells
    assert len(cells) == 7
    for cell in cells[:2]:  # the Genie and OSAFL; the others differ in their algorithm only
        assert len(run(reduced(cell.experiment)).rounds) == 2


def test_the_grid_gives_every_method_the_same_rates():
    cells = load(PAPER / "video-lstm-grid.toml").cells
    chosen = {c.settings["case"]: c.experiment for c in load(PAPER / "video-lstm-small.toml").cells}
    methods = {name.split(",")[0] for name in (cell.settings["case"] for cell in cells)}
    assert methods == set(chosen)
    rates = {}
    for cell in cells:
        rates.setdefault(cell.settings["case"], []).append(cell.experiment.train.lr)
        assert cell.experiment.population.rounds == chosen["OSAFL"].population.rounds
    assert set(map(tuple, rates.values())) == {(0.3, 1.0, 3.0, 10.0)}
    edges = load(PAPER / "video-lstm-grid-edges.toml")
    tried = [cell.experiment for cell in (*cells, *edges.cells)]
    for e in chosen.values():  # what the study uses was among what was tried
        assert any((e.algorithm, e.train.lr) == (one.algorithm, one.train.lr) for one in tried)
    assert set(edges.seeds) == {10}


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_tables_are_what_the_paper_says(number):
    study = load(PAPER / f"table{number}.toml")
    assert len(study.cells) == (21 if number < 4 else 7)
    for cell in study.cells:
        e = cell.experiment
        assert e.data.similar == (1 if number in (2, 4) else 2)
        assert (e.population.clients == 1) == ("Genie" in cell.settings["case"])
    osafl = next(c for c in study.cells if "OSAFL" in c.settings["case"])
    assert osafl.experiment.algorithm.server_lr == 35


def test_shares_of_stragglers():
    """Fig. 3b in one cell radius, the one thing chosen: the order, and within 12 points each."""
    found = {}
    for cell in load(PAPER / "stragglers.toml").cells:
        e, everybody = cell.experiment, np.arange(100)
        history = e.data.form == "history"
        model = e.train.model.build((10,) if history else (3, 32, 33), 100, 100 * history)
        size = sum(p.numel() for p in model.parameters())
        assert type(e.train.model) in MODELS.values()
        work = Work(
            np.full(100, 5), np.full(100, 400), 160, 4 * size, 4 * size, size,
            bits_per_example=32 * 3168,
        )  # fmt: skip
        shares = []
        for seed in (1, 2, 3):
            state, missed = e.network.start(100, seed), np.zeros(100)
            for t in range(50):
                plan, state = e.network.plan(state, t, everybody, work, seed)
                missed += ~plan.able
            shares.append((missed >= 25).mean())
        found[cell.settings["case"]] = float(np.mean(shares))
    assert list(found) == sorted(found, key=found.get)
    assert all(abs(found[name] - share) < 0.12 for name, share in STRAGGLERS.items()), found


def test_everything_together():
    """DIMC's start, FAST's snapshots, a radio with batteries, changing data, OSAFL or FedAgg."""
    study = load(STUDIES / "everything.toml", seeds=[1])
    kinds = {type(cell.experiment.algorithm).__name__ for cell in study.cells}
    assert kinds == {"Osafl", "FedAgg"}
    for cell in study.cells[::2]:
        e = cell.experiment
        small = replace(
            e,
            population=replace(e.population, clients=6, sessions=3, rounds=3),
            engine=settings_of(workers=1, device="cpu"),
        )
        lines = run(small).rounds
        assert len(lines) == 9
        assert sum(line["steps"] for line in lines) > sum(line["cohort"] for line in lines)
        assert sum(line["joules"] for line in lines) > 0
        assert any(line["snapshot"] for line in lines)
        assert "start_weights" in lines[6]
        assert all(line["cohort"] + line["absent"] <= 6 for line in lines)
