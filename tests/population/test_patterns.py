"""Patterns of presence by name, against their definitions."""

import numpy as np
import pytest

from fedtide import config
from fedtide.population.patterns import (
    Handover,
    IncrementalArrival,
    IncrementalDeparture,
    MarkovPresence,
    RandomPresence,
    RoundRobin,
    StaticPresence,
)
from fedtide.run.loop import run

LONG = 4000  # rounds, enough for shares within a few hundredths


def there(population, seed=0):
    """Which clients exist in which rounds, [rounds, clients], as a run sees them."""
    mask = np.zeros((population.length, population.clients), dtype=bool)
    for t in range(population.length):
        mask[t, population.at(t, seed).clients] = True
    return mask


def test_static():
    assert there(StaticPresence(clients=3, rounds=4)).all()


def test_incremental_arrival():
    """Of five clients one is there; from round 2 on two more come every three rounds."""
    population = IncrementalArrival(clients=5, initial=1, begin=2, every=3, party=2, rounds=9)
    assert there(population).sum(1).tolist() == [1, 1, 3, 3, 3, 5, 5, 5, 5]
    assert there(population)[2].tolist() == [True, True, True, False, False]


def test_incremental_departure():
    """Of five clients one stays; from round 2 on two leave every three rounds, the last ones first."""
    population = IncrementalDeparture(clients=5, initial=1, begin=2, every=3, party=2, rounds=9)
    assert there(population).sum(1).tolist() == [5, 5, 3, 3, 3, 1, 1, 1, 1]
    assert there(population)[2].tolist() == [True, True, True, False, False]


def test_round_robin():
    """The table in DPFL's code: two of four clients, turns of two rounds; then it begins again."""
    found = there(RoundRobin(clients=4, present=2, every=2, rounds=9))
    turns = [[0, 1], [1, 2], [2, 3], [0, 3], [0, 1]]
    assert [np.flatnonzero(row).tolist() for row in found] == [turns[t // 2] for t in range(9)]


@pytest.mark.parametrize("seed", [0, 1])
def test_random(seed):
    found = there(RandomPresence(clients=8, rate=0.3, rounds=LONG), seed)
    np.testing.assert_allclose(found.mean(0), 0.3, atol=0.04)
    together = (found[:, 0] & found[:, 1]).mean()
    assert together == pytest.approx(0.09, abs=0.03)
    assert (found[1:] & found[:-1]).mean() == pytest.approx(0.09, abs=0.02)


@pytest.mark.parametrize("population", [RandomPresence, MarkovPresence])
def test_no_round_is_empty(population):
    found = there(
        population(
            clients=2, rounds=200, **({"arrive": 0.1} if population is MarkovPresence else {})
        )
    )
    assert found.any(1).all()


def test_markov():
    """Of those present 0.9 stay, of those absent 0.3 arrive; in the long run 3/4 are present."""
    found = there(MarkovPresence(clients=8, stay=0.9, arrive=0.3, rounds=LONG))
    before, after = found[:-1], found[1:]
    assert after[before].mean() == pytest.approx(0.9, abs=0.02)
    assert after[~before].mean() == pytest.approx(0.3, abs=0.02)
    assert found.mean() == pytest.approx(0.75, abs=0.03)


def test_handover():
    """A visit lasts 5 rounds on average; a sixth of the clients is in the server's cell."""
    found = there(Handover(clients=60, cells=6, stay=5, rounds=LONG))
    assert found.mean() == pytest.approx(1 / 6, abs=0.02)
    assert found[1:][found[:-1]].mean() == pytest.approx(0.8, abs=0.02)
    steps = np.diff(found.astype(int), axis=0)
    arrivals = (steps == 1).sum() / (~found[:-1]).sum()
    assert arrivals == pytest.approx(2 / 5 * 0.2 / 2, abs=0.01)  # from two of five other cells


@pytest.mark.parametrize("kind", ["random", "markov", "handover"])
def test_longer_runs_begin_the_same(kind):
    """A study that gets more rounds goes on, it does not begin anew."""
    short, long = (
        config.study("p", {"population": {"kind": kind, "rounds": n}, "train": {"steps": 1}})
        .cells[0]
        .experiment.population
        for n in (10, 25)
    )
    assert (there(short, 3) == there(long, 3)[:10]).all()


@pytest.mark.parametrize(
    "kind",
    [
        "static",
        "incremental-arrival",
        "incremental-departure",
        "round-robin",
        "random",
        "markov",
        "handover",
    ],
)
def test_a_study_of_each_in_one_line(kind):
    table = {"population": {"kind": kind, "rounds": 12}, "train": {"steps": 1}, "start": "soup"}
    lines = run(config.study("p", table).cells[0].experiment).rounds
    assert len(lines) == 12
    assert len({line["session"] for line in lines}) > 1 or kind == "static"
