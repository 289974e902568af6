"""One shape of error."""

import pytest

from fedtide.core import errors
from fedtide.core.errors import ConfigError, FedTideError, choices, require


def test_the_tree():
    names = ["ConfigError", "DataError", "EngineError", "TrainingError", "OutputError"]
    for name in names:
        assert issubclass(getattr(errors, name), FedTideError)
        assert name in errors.__doc__
    assert issubclass(ConfigError, ValueError)


def test_require():
    require(True, "train.lr", "positive", -1)
    with pytest.raises(ConfigError) as caught:
        require(False, "train.lr", "positive", -1)
    assert str(caught.value) == "train.lr must be positive. Got -1."
    with pytest.raises(ConfigError) as caught:
        require(False, "data.name", "known", "x", "See fedtide list datasets.")
    assert str(caught.value) == "data.name must be known. Got 'x'. See fedtide list datasets."


def test_choices():
    assert choices("muu", ["tau", "mu"]) == "Did you mean 'mu'?"
    assert choices("zzz", ["tau", "mu"]) == "Choose from: mu, tau."
