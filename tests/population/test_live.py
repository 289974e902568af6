"""Populations that are observed while a run goes on."""

import numpy as np
import pytest

from fedtide import Experiment, Train, run
from fedtide.core.errors import ConfigError
from fedtide.population.live import Live
from fedtide.population.participation import Uniform

WHO = [[0, 1], [1, 0], [], [], [2], [0, 1]]


def test_sessions_are_what_is_seen():
    """A session lasts while the same clients are there; every round is looked at once."""
    seen = []

    def who(t):
        seen.append(t)
        return np.array(WHO[t])

    population = Live(clients=3, rounds=6, who=who).opened()
    sessions = [population.at(t) for t in (0, 0, 1, 2, 3, 4, 5, 4)]
    assert seen == [0, 1, 2, 3, 4, 5]
    assert [s.number for s in sessions] == [0, 0, 0, 1, 1, 2, 3, 2]
    assert [s.first for s in sessions] == [0, 0, 0, 2, 2, 4, 5, 4]
    assert [s.rounds for s in sessions[2:]] == [6, 4, 4, 2, 1, 2]
    assert [s.clients.tolist() for s in sessions] == [[0, 1]] * 3 + [[]] * 2 + [[2], [0, 1], [2]]


def test_every_run_looks_for_itself():
    population = Live(clients=3, rounds=6, who=lambda t: np.array(WHO[t]))
    assert population.opened().at(0) is not population.opened().at(0)


def test_where_nobody_observes_everybody_is_there():
    population = Live(clients=3, rounds=6).opened()
    assert population.at(5).clients.tolist() == [0, 1, 2]
    assert population.length == 6


def test_an_unknown_client():
    with pytest.raises(ConfigError, match=r"population.who must be clients below 3. Got \[3\]"):
        Live(clients=3, rounds=6, who=lambda t: np.array([3])).opened().at(0)


def test_a_run_with_fewer_clients_than_it_would_like():
    """A cohort of two when only one client or none is there: the clients that are there take part."""
    history = run(
        Experiment(
            population=Live(clients=3, rounds=6, who=lambda t: np.array(WHO[t], dtype=np.int64)),
            participation=Uniform(clients=2),
            train=Train(steps=1),
        )
    )
    assert [line["clients"] for line in history.rounds] == [[0, 1], [0, 1], [], [], [2], [0, 1]]
    assert [line["left"]["ids"] for line in history.rounds if "left" in line] == [
        "",
        "0-1",
        "",
        "2",
    ]
    assert [line["t"] for line in history.rounds if "start" in line] == [0, 4, 5]
