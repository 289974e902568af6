"""Server rules on one number, with the arithmetic beside it."""

from math import sqrt

import pytest
import torch

from fedtide.algorithms.server import (
    SERVER_RULES,
    ServerAdagrad,
    ServerAdam,
    ServerAverage,
    ServerMomentum,
    ServerYogi,
)


def follow(rule, *deltas):
    """The model after each of these mean updates, from 0."""
    x, path = torch.zeros(1, dtype=torch.float64), []
    state = rule.start(x)
    for delta in deltas:
        x, state = rule.step(x, torch.tensor([delta], dtype=torch.float64), state)
        path.append(x.item())
    return path


def test_average():
    """x <- x + delta, and half of it with lr = 1/2."""
    assert follow(ServerAverage(), 1, 0.5) == [1, 1.5]
    assert follow(ServerAverage(lr=0.5), 1, 0.5) == [0.5, 0.75]


def test_momentum():
    """beta = 1/2: v = 1, x = 1; v = 0.5 + 0.5 = 1, x = 2; v = 0.5 - 1 = -0.5, x = 1.5."""
    assert follow(ServerMomentum(beta=0.5), 1, 0.5, -1) == [1, 2, 1.5]
    assert follow(ServerMomentum(beta=0.5, lr=0.5), 1, 0.5, -1) == [0.5, 1, 0.75]


def test_nesterov():
    """beta = 1/2: v = 1, x = 1 + 0.5 * 1 = 1.5; v = 1, x = 1.5 + 0.5 + 0.5 * 1 = 2.5."""
    assert follow(ServerMomentum(beta=0.5, nesterov=True), 1, 0.5) == [1.5, 2.5]


def test_nesterov_is_that_of_torch():
    """x follows SGD on the negated updates."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=0.3, momentum=0.9, nesterov=True)
    path = []
    for delta in (1.0, -0.4, 2.0):
        x.grad = torch.tensor([-delta], dtype=torch.float64)
        optimiser.step()
        path.append(x.item())
    rule = ServerMomentum(lr=0.3, beta=0.9, nesterov=True)
    assert follow(rule, 1.0, -0.4, 2.0) == pytest.approx(path, abs=1e-12)


def test_adagrad():
    """tau = 0.6, so v_0 = 0.36; lr = 1 and no first moment.

    delta = 0.8:  v = 0.36 + 0.64 = 1,       x = 0.8 / (1 + 0.6) = 0.5
    delta = 0.75: v = 1 + 0.5625 = 1.25^2,   x = 0.5 + 0.75 / (1.25 + 0.6)
    """
    expected = [0.5, 0.5 + 0.75 / 1.85]
    assert follow(ServerAdagrad(lr=1.0, tau=0.6), 0.8, 0.75) == pytest.approx(expected, abs=1e-12)


def test_adam():
    """tau = v_0 = 1, both betas 1/2, lr = 1; no bias correction.

    delta = 1: m = 0.5,               v = 0.5 + 0.5 = 1,   x = 0.5 / (1 + 1) = 0.25
    delta = 7: m = 0.25 + 3.5 = 3.75, v = 0.5 + 24.5 = 25, x = 0.25 + 3.75 / (5 + 1) = 0.875
    """
    rule = ServerAdam(lr=1.0, beta1=0.5, beta2=0.5, tau=1.0)
    assert follow(rule, 1, 7) == pytest.approx([0.25, 0.875], abs=1e-12)


def test_yogi():
    """tau = v_0 = 1, both betas 1/2, lr = 1.

    delta = 4:        m = 2, v = 1 + 16 / 2 = 9 (v below the square: it grows), x = 2 / (3 + 1) = 0.5
    delta = sqrt(10): m = 1 + sqrt(10) / 2, v = 9 + 10 / 2 = 14 (below again),  x = 0.5 + m / (sqrt(14) + 1)
    delta = 2:        m = m / 2 + 1, v = 14 - 4 / 2 = 12 (above: it falls),     x = x + m / (sqrt(12) + 1)
    """
    m = 1 + sqrt(10) / 2
    second = 0.5 + m / (sqrt(14) + 1)
    third = second + (m / 2 + 1) / (sqrt(12) + 1)
    rule = ServerYogi(lr=1.0, beta1=0.5, beta2=0.5, tau=1.0)
    assert follow(rule, 4, sqrt(10), 2) == pytest.approx([0.5, second, third], abs=1e-12)


def test_defaults_are_those_of_the_papers():
    """Reddi et al.: beta1 0.9 (none for FedAdagrad), beta2 0.99, tau 0.001; Hsu et al.: beta 0.9."""
    assert (ServerMomentum().beta, ServerMomentum().lr, ServerMomentum().nesterov) == (
        0.9,
        1.0,
        False,
    )
    for rule, beta1 in ((ServerAdam(), 0.9), (ServerYogi(), 0.9), (ServerAdagrad(), 0.0)):
        assert (rule.beta1, rule.beta2, rule.tau) == (beta1, 0.99, 0.001)


def test_the_names_of_the_rules():
    assert list(SERVER_RULES) == ["average", "momentum", "adagrad", "adam", "yogi"]
