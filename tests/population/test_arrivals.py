"""Clients that come and go one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.population import POPULATIONS
from fedtide.population.arrivals import Poisson, VisitTrace

STAYS = ((0, 0, 4), (1, 0, 6), (0, 5, 8), (2, 6, 7))


def sessions(population, seed=0):
    return [population.at(t, seed) for t in range(population.length)]


def test_a_trace_by_hand():
    """Round 4: client 0 leaves; 5: it returns; 6: 1 leaves, 2 comes; 7: 2 leaves; 8: no client is left."""
    found = sessions(VisitTrace(stays=STAYS, rounds=10))
    who = [s.clients.tolist() for s in found]
    assert who == [[0, 1]] * 4 + [[1], [0, 1], [0, 2], [0], [], []]
    assert [s.number for s in found] == [0, 0, 0, 0, 1, 2, 3, 4, 5, 5]
    assert [s.first for s in found] == [0, 0, 0, 0, 4, 5, 6, 7, 8, 8]
    assert [s.rounds for s in found] == [4] * 4 + [1, 1, 1, 1, 2, 2]


def test_a_trace_from_a_file(tmp_path):
    file = tmp_path / "visits.csv"
    file.write_text("client,arrive,leave\n" + "".join(f"{c},{a},{b}\n" for c, a, b in STAYS))
    trace = VisitTrace(file=str(file), rounds=10)
    assert [s.clients.tolist() for s in sessions(trace)] == [
        s.clients.tolist() for s in sessions(VisitTrace(stays=STAYS, rounds=10))
    ]
    assert trace.groups(10)[0].clients == 3
    assert VisitTrace(file=str(file), clients=7).groups(10)[0].clients == 7


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    stay=st.floats(1, 30),
    tide=st.sampled_from([0, 7]),
    party=st.integers(1, 4),
    law=st.sampled_from(["exponential", "pareto"]),
)
def test_laws_of_arrivals(seed, stay, tide, party, law):
    population = Poisson(
        clients=12, present=8, stay=stay, tide=tide, party=party, law=law, opening=5, rounds=40
    )
    found = sessions(population, seed)
    numbers = [s.number for s in found]
    assert numbers[0] == 0
    assert set(np.diff(numbers)) <= {0, 1}
    for t, s in enumerate(found):
        assert s.first <= t < s.first + s.rounds
        assert np.all(np.diff(s.clients) > 0)  # sorted, no client twice
        assert np.all((s.clients >= 0) & (s.clients < (24 if tide else 12)))
    assert len(found[0].clients) == 8
    assert found[4].number == 0  # no client comes or goes during the opening
    again = sessions(population, seed)
    assert [s.clients.tolist() for s in again] == [s.clients.tolist() for s in found]


def test_seeds_differ():
    population = Poisson(clients=50, present=20, rounds=60)
    one, other = ([s.clients.tolist() for s in sessions(population, seed)] for seed in (1, 2))
    assert one != other


@pytest.mark.parametrize("law", ["exponential", "pareto"])
def test_littles_law(law):
    """present / stay arrivals per round, each for `stay` rounds: `present` clients on average."""
    population = Poisson(
        clients=400, present=40, stay=10, law=law, shape=3.0, opening=1, rounds=3000
    )
    counts = [len(population.at(t, 5).clients) for t in range(200, 3000)]
    assert np.mean(counts) == pytest.approx(40, rel=0.06)
    visits = population.visits(5)
    assert np.mean(visits.leave - visits.arrive) == pytest.approx(10, rel=0.06)
    assert len(visits.client) / 3000 == pytest.approx(4, rel=0.06)


@pytest.mark.parametrize("law", ["exponential", "pareto"])
@pytest.mark.parametrize("stay", [1.0, 1.5, 3.0])
def test_present_is_the_expected_number_for_short_stays(stay, law):
    """In the long run, and in the first rounds after the opening: no client counts twice."""
    population = Poisson(
        clients=400, present=20, stay=stay, law=law, shape=3.0, opening=2, rounds=40
    )
    there, rounds = np.zeros((500, 40)), np.arange(40)[:, None]
    for seed in range(500):
        visits = population.visits(seed)
        there[seed] = ((visits.arrive <= rounds) & (visits.leave > rounds)).sum(1)
    assert (there[:, :2] == 20).all()
    # The number is about Poisson(20): the mean over 500 seeds has a standard error of 0.2.
    assert np.abs(there.mean(0) - 20).max() < 0.8
    assert there[:, 2:].mean() == pytest.approx(20, abs=0.1)


def test_pareto_stays_have_the_heavier_tail():
    far = {}
    for law in ("exponential", "pareto"):
        visits = Poisson(clients=500, present=100, stay=10, law=law, rounds=2000).visits(3)
        far[law] = np.mean(visits.leave - visits.arrive > 100)
    assert far["pareto"] > 5 * far["exponential"]


def test_groups_follow_the_tide():
    """Every 10 rounds after the opening all clients leave and 6 of the other group arrive."""
    population = Poisson(clients=10, present=6, stay=8, opening=5, tide=10, rounds=45)
    for t in range(45):
        group = 0 if t < 5 else ((t - 5) // 10 + 1) % 2
        assert {client // 10 for client in population.at(t, 2).clients} <= {group}
    for turn in (5, 15, 25, 35):
        assert population.at(turn, 2).first == turn
        assert len(population.at(turn, 2).clients) >= 6
    assert [g.labels for g in population.groups(10)] == [tuple(range(5)), tuple(range(5, 10))]
    assert Poisson(clients=10, present=6).groups(10)[0].labels is None


def test_parties_arrive_and_leave_together():
    visits = Poisson(clients=90, present=30, party=3, stay=10, opening=2, rounds=100).visits(1)
    pairs = list(zip(visits.arrive.tolist(), visits.leave.tolist(), strict=True))
    assert all(pairs.count(pair) % 3 == 0 for pair in set(pairs))


def test_the_names_of_the_populations():
    kinds = ["fixed", "alternating", "pattern", "poisson", "trace", "live"]
    kinds += ["static", "incremental-arrival", "incremental-departure", "round-robin", "random"]
    assert list(POPULATIONS) == [*kinds, "markov", "handover"]
