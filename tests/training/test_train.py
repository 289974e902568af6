"""The [train] section: what it refuses before the first round."""

import pytest
from torch import nn

from fedtide.core.errors import ConfigError
from fedtide.models.dense import Mlp
from fedtide.population.sessions import Fixed
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run
from fedtide.tasks.kinds import Classification
from fedtide.tasks.losses import CrossEntropy
from fedtide.training.train import Train
from tests.worlds import settings_of


def experiment(loss, kind):
    return Experiment(
        population=Fixed(clients=4, rounds=2),
        task=Classification(loss=loss),
        train=Train(model=Mlp(hidden=(8,)), steps=3, batch_size=8),
        engine=settings_of(kind=kind, workers=1),
    )


@pytest.mark.parametrize("kind", ["auto", "loop", "vectorised"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_that_is_one_number_is_refused(kind, reduction):
    seen = []
    with pytest.raises(ConfigError) as caught:
        run(experiment(nn.CrossEntropyLoss(reduction=reduction), kind), watch=seen.append)
    assert str(caught.value) == (
        "task.loss must be one value per example: a tensor of shape (2,) for 2 examples. Got (). "
        'Write reduction="none", as in nn.CrossEntropyLoss(reduction="none").'
    )
    assert seen == []  # before the first round


@pytest.mark.parametrize("kind", ["loop", "vectorised"])
def test_a_loss_of_your_own(kind):
    """One value per example: the same numbers as the default, which is the same loss."""
    own = run(experiment(nn.CrossEntropyLoss(reduction="none"), kind)).rounds
    default = run(experiment(CrossEntropy(), kind)).rounds
    for key in ("loss", "train_loss", "accuracy"):
        assert [line[key] for line in own] == pytest.approx([line[key] for line in default])
