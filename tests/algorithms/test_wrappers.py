"""What algorithms say of themselves, and of what they wrap."""

from dataclasses import dataclass

import pytest

from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.fedagg import FedAgg
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.moon import Moon


@dataclass(frozen=True, kw_only=True)
class Slower(FedProx):
    """Another direction, which is not marked as taking many clients at once."""

    def direction(self, grad, y, k, down, mine):
        return grad / 2


@dataclass(frozen=True, kw_only=True)
class Held(Continuous):
    """A wrapper with something of its own."""

    def direction(self, grad, y, k, down, mine):
        return grad / 2

    def rate(self, lr, down, mine):
        return lr / 2


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        (FedAvg(), set()),
        (FedProx(), {"direction"}),
        (Moon(), {"penalty"}),
        (FedAgg(), {"rate"}),
        (Continuous(), set()),
        (Continuous(of=FedProx()), {"direction"}),
        (Continuous(of=FedAgg()), {"rate"}),
        (Continuous(of=Moon(), loss="relation"), {"penalty"}),
        (
            Continuous(of=Continuous(of=FedProx(), loss="relation"), loss="relation"),
            {"penalty", "direction"},
        ),
        (Held(), {"direction", "rate"}),
    ],
)
def test_what_is_their_own(algorithm, own):
    assert {m for m in ("penalty", "direction", "rate") if algorithm.has_own(m)} == own


@pytest.mark.parametrize(
    ("algorithm", "direction", "report"),
    [
        (FedAvg(), True, True),
        (FedProx(), True, True),
        (Slower(), False, True),
        (Continuous(), True, True),
        (Continuous(of=Slower()), False, True),
        (Held(), False, True),
    ],
)
def test_who_takes_many_clients_at_once(algorithm, direction, report):
    assert algorithm.is_stacked("direction") is direction
    assert algorithm.is_stacked("report") is report
