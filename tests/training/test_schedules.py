"""Learning rates by hand."""

import pytest

from fedtide.core.errors import ConfigError
from fedtide.training.schedules import SCHEDULES, Constant, Cosine, Poly, Step
from fedtide.training.train import Train


def factors(schedule, rounds):
    return [schedule.factor(t, rounds) for t in range(rounds)]


def test_constant():
    assert factors(Constant(), 3) == [1, 1, 1]


def test_step():
    """Halved every two rounds: 1, 1, 1/2, 1/2, 1/4."""
    assert factors(Step(every=2, gamma=0.5), 5) == [1, 1, 0.5, 0.5, 0.25]
    assert factors(Step(gamma=0.998), 3) == pytest.approx([1, 0.998, 0.998**2])


def test_poly():
    """Chang et al.: (lr0 - rho lr0) (1 - t / T)^0.9 + rho lr0. At t = T / 2: 0.5^0.9 = 0.535887."""
    assert factors(Poly(floor=0.2), 2) == pytest.approx([1, 0.8 * 0.535887 + 0.2], abs=1e-6)
    assert factors(Poly(power=1.0), 4) == [1, 0.75, 0.5, 0.25]
    assert factors(Poly(floor=1.0), 3) == [1, 1, 1]


def test_cosine():
    """(1 + cos(pi t / T)) / 2 of what lies above the floor: 1, 3/4, 1/2 - ..., at T = 3."""
    assert factors(Cosine(), 3) == pytest.approx([1, 0.75, 0.25])
    assert factors(Cosine(floor=0.2), 2) == pytest.approx([1, 0.6])


def test_the_rate_of_a_round():
    train = Train(epochs=1, lr=0.4, schedule=Step(gamma=0.5))
    assert [train.rate(t, 3) for t in range(3)] == pytest.approx([0.4, 0.2, 0.1])


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Step, {"every": 0}, "train.schedule.every must be at least 1. Got 0."),
        (Step, {"gamma": 0}, "train.schedule.gamma must be positive. Got 0."),
        (Poly, {"floor": 1.1}, "train.schedule.floor must be in [0, 1]. Got 1.1."),
        (Poly, {"power": 0}, "train.schedule.power must be positive. Got 0."),
        (Cosine, {"floor": -1}, "train.schedule.floor must be in [0, 1]. Got -1."),
        (Train, {"epochs": 1, "lr": 0}, "train.lr must be a positive number. Got 0."),
        (Train, {"epochs": 1, "lr": float("inf")}, "train.lr must be a positive number. Got inf."),
    ],
)
def test_wrong_settings(kind, settings, message):
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert str(caught.value) == message


def test_the_names_of_the_schedules():
    assert {"constant": Constant, "step": Step, "poly": Poly, "cosine": Cosine} == SCHEDULES
