"""Who came, who left, what clients hold: small facts about populations of any size."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtide.data.source import Data
from fedtide.measure.census import CLASSES, SHOWN, counted, holdings, moved, named, sample
from fedtide.population.arrivals import Poisson
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Alternating, Fixed, Pattern
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


def test_who_came_and_who_left():
    came, left = moved(ids(0, 1, 2, 5), ids(1, 2, 3, 4, 9))
    assert counted(came) == {"clients": 3, "ids": "3-4 9"}
    assert counted(left) == {"clients": 2, "ids": "0 5"}


@given(st.sets(st.integers(0, 300)))
def test_ranges_can_be_read_again(numbers):
    found = counted(np.array(sorted(numbers), dtype=np.int64))
    assert list(named(found["ids"])) == sorted(numbers)
    assert found["clients"] == len(numbers)


def test_scattered_crowds_are_only_counted():
    assert counted(np.arange(0, 10_000, 2)) == {"clients": 5_000}
    assert counted(np.arange(1_000_000)) == {"clients": 1_000_000, "ids": "0-999999"}


@pytest.mark.parametrize("clients", [1, SHOWN, SHOWN + 1, 1_000_000])
def test_a_sample_is_never_large(clients):
    chosen = sample(clients)
    assert 0 < len(chosen) <= min(SHOWN, clients)
    assert chosen[-1] < clients


def test_too_many_labels_are_left_out():
    assert holdings(ids(0), np.zeros((1, CLASSES + 1), dtype=np.int64)) == {}


def test_a_run_tells_who_came_and_went():
    population = Pattern(clients=4, sessions=((0, 1), (1, 2, 3)), rounds=2)
    lines = run(Experiment(population=population)).rounds
    assert [("arrived" in line, "holdings" in line) for line in lines] == [
        (True, True),
        (False, False),
        (True, False),
        (False, False),
    ]
    assert lines[0]["arrived"] == {"clients": 2, "ids": "0-1"}
    assert lines[0]["left"] == {"clients": 0, "ids": "", "since": [[], []]}
    assert lines[2]["arrived"] == {"clients": 2, "ids": "2-3"}
    assert lines[2]["left"] == {"clients": 1, "ids": "0", "since": [[0], [1]]}


def test_moves_add_up_to_the_population():
    population = Poisson(rounds=20, clients=30)
    present = 0
    for line in run(Experiment(population=population)).rounds:
        if "arrived" in line:
            present += line["arrived"]["clients"] - line["left"]["clients"]
        assert line["population"] == present


def test_holdings_are_the_labels_of_each_client():
    lines = run(Experiment(population=Alternating(clients=3, sessions=1, rounds=1))).rounds
    held = lines[0]["holdings"]
    labels = np.array(held["labels"])
    assert held["ids"] == "0-5"
    assert labels.shape == (6, 10)
    assert labels[:3, 5:].sum() == labels[3:, :5].sum() == 0  # two groups, different labels
    assert labels.sum() == len(Data().load().train)


def test_a_large_population_leaves_a_small_line():
    population = Fixed(clients=1_000, rounds=1)
    few = Experiment(population=population, participation=Uniform(clients=5))
    (line,) = run(few).rounds
    assert len(line["holdings"]["labels"]) == SHOWN
    assert len(json.dumps(line)) < 6_000
