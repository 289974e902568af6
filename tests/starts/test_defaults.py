"""No start loses what was learnt when hardly anything changes, at its defaults."""

import pytest

from fedtide import Data, Experiment, Train, run
from fedtide.core.errors import ConfigError
from fedtide.population.arrivals import VisitTrace
from fedtide.population.sessions import Pattern
from fedtide.run.preflight import drawn_cautions
from fedtide.run.world import World
from fedtide.starts import STARTS

ROUNDS = 15
ARRIVES = {
    "at any round": VisitTrace(
        stays=(*((u, 0, 3 * ROUNDS) for u in range(10)), (10, ROUNDS, 2 * ROUNDS)),
        rounds=3 * ROUNDS,
    ),
    "as sessions": Pattern(
        clients=11, sessions=((*range(10),), (*range(11),), (*range(10),)), rounds=ROUNDS
    ),
}


@pytest.mark.parametrize("kind", [kind for kind in STARTS if kind != "cold"])
@pytest.mark.parametrize("population", ARRIVES.values(), ids=ARRIVES)
def test_one_of_eleven_clients_arrives_and_leaves_again(kind, population):
    """Accuracy falls by at most two percentage points in the rounds of the changes."""
    e = Experiment(
        data=Data(name="digits"),
        population=population,
        train=Train(model="linear", lr=0.1, batch_size=32, epochs=1),
        start=kind,
    )
    accuracy = [line["accuracy"] for line in run(e).rounds]
    assert accuracy[ROUNDS - 1] > 0.7
    for change in (ROUNDS, 2 * ROUNDS):
        assert accuracy[change] > accuracy[change - 1] - 0.02


def pilots(population, P):
    return Experiment(population=population, train=Train(steps=1), start=STARTS["similarity"](P=P))


def test_a_pilot_of_all_sessions_is_an_error():
    with pytest.raises(ConfigError, match=r"start.P must be less than 3, the number of sessions"):
        pilots(ARRIVES["as sessions"], P=3)
    pilots(ARRIVES["as sessions"], P=2)


def test_a_pilot_of_all_changes_is_worth_a_caution():
    """Single clients come and go: three sessions, which a caution mentions before the run."""
    e = pilots(ARRIVES["at any round"], P=3)
    with World.build(e) as world:
        (caution,) = drawn_cautions(e, world.crowd, "similarity")
    assert caution.startswith("The start makes no difference (similarity): its pilot has P = 3")
