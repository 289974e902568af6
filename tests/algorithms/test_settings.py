"""Wrong hyper-parameters are refused in the words of the world."""

import pytest

from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.moon import Moon
from fedtide.algorithms.scaffold import Scaffold
from fedtide.algorithms.server import (
    ServerAdagrad,
    ServerAdam,
    ServerAverage,
    ServerMomentum,
    ServerYogi,
)
from fedtide.core.errors import ConfigError

NAN = float("nan")
WRONG = [
    (FedProx, {"mu": -1}, "algorithm.mu must be zero or positive. Got -1."),
    (FedProx, {"mu": NAN}, "algorithm.mu must be zero or positive. Got nan."),
    (Moon, {"mu": -0.5}, "algorithm.mu must be zero or positive. Got -0.5."),
    (Moon, {"tau": 0}, "algorithm.tau must be positive. Got 0."),
    (Scaffold, {"server_lr": 0.0}, "algorithm.server_lr must be positive. Got 0.0."),
    (FedACG, {"lambda_": 1}, "algorithm.lambda must be in [0, 1). Got 1."),
    (FedACG, {"lambda_": -0.1}, "algorithm.lambda must be in [0, 1). Got -0.1."),
    (FedACG, {"beta": -1}, "algorithm.beta must be zero or positive. Got -1."),
    (FedDyn, {"alpha": 0}, "algorithm.alpha must be positive. Got 0. For 0 use fedavg."),
    (ServerAverage, {"lr": 0}, "algorithm.server.lr must be positive. Got 0."),
    (ServerMomentum, {"beta": 1.0}, "algorithm.server.beta must be in [0, 1). Got 1.0."),
    (ServerMomentum, {"lr": -1}, "algorithm.server.lr must be positive. Got -1."),
    (ServerAdam, {"beta1": 1}, "algorithm.server.beta1 must be in [0, 1). Got 1."),
    (ServerYogi, {"beta2": -0.1}, "algorithm.server.beta2 must be in [0, 1). Got -0.1."),
    (ServerAdagrad, {"tau": 0}, "algorithm.server.tau must be positive. Got 0."),
    (ServerAdagrad, {"lr": NAN}, "algorithm.server.lr must be positive. Got nan."),
]


@pytest.mark.parametrize(("kind", "settings", "message"), WRONG)
def test_wrong_settings(kind, settings, message):
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(("kind", "settings", "message"), WRONG)
def test_settings_have_names(kind, settings, message):
    with pytest.raises(TypeError):
        kind(*settings.values())


def test_the_edges_are_allowed():
    assert FedProx(mu=0).mu == 0
    assert Moon(mu=0).mu == 0
    assert FedACG(lambda_=0, beta=0).lambda_ == 0
    assert ServerMomentum(beta=0).beta == 0
