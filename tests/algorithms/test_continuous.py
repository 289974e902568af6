"""Distillation from the model a session begins with, by hand."""

import math

import pytest
import torch
from torch import nn

from fedtide.algorithms.continuous import Continuous, Server
from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.moon import Moon
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.errors import ConfigError
from fedtide.core.types import Batch, Nothing, Outputs
from fedtide.tasks.task import Task
from fedtide.training.client import added
from fedtide.training.messages import Broadcast
from fedtide.training.optimisers import Sgd

X, TEACHER = torch.tensor([1.0]), torch.tensor([7.0])
DOWN = Server(X, Nothing(), TEACHER)
STUDENT = Outputs(torch.zeros(1, 1), torch.tensor([[0.0, 0.0]]))  # 1/2, 1/2
TASK = Task(nn.Linear(1, 2))
BATCH = Batch(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long), torch.ones(1))
OLD = torch.tensor([[math.log(3.0), 0.0]])  # 3/4, 1/4


def look(x):
    assert x is TEACHER
    return Outputs(torch.zeros(1, 1), OLD)


def test_kl():
    """3/4 log(3/4 / 1/2) + 1/4 log(1/4 / 1/2) = 0.75 log 1.5 - 0.25 log 2."""
    algorithm = Continuous(weight=2.0)
    assert algorithm.penalty(X, STUDENT, BATCH, look, DOWN, Nothing()) == 0
    broadcast = Broadcast(algorithm, Sgd(), 0.1, DOWN, {}, 0)
    value = added(TASK, broadcast, X, STUDENT, BATCH, look, Nothing())
    assert value.tolist() == pytest.approx([2 * (0.75 * math.log(1.5) - 0.25 * math.log(2))])


def test_relation():
    """Targets are sigmoids, 3/4 and 1/2; the student says 1/2 twice: -log(1/2) each, mean log 2."""
    value = Continuous(loss="relation").penalty(X, STUDENT, BATCH, look, DOWN, Nothing())
    assert value.tolist() == pytest.approx([math.log(2)])
    surer = Outputs(torch.zeros(1, 1), torch.tensor([[math.log(3.0), 0.0]]))
    value = Continuous(loss="relation").penalty(X, surer, BATCH, look, DOWN, Nothing())
    first = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert value.tolist() == pytest.approx([(first + math.log(2)) / 2])


def test_the_teacher_stays_while_the_model_moves():
    algorithm = Continuous(of=FedACG(lambda_=0.5))
    server = algorithm.init(X, None)
    assert server.teacher is X
    server = server._replace(of=server.of._replace(m=torch.tensor([2.0])))
    down = algorithm.broadcast(server)
    assert down.x.tolist() == [2.0]  # FedACG looks ahead: 1 + 0.5 * 2
    assert down.teacher is X


@pytest.mark.parametrize("of", [FedAvg(), Scaffold(), FedACG(), Moon()])
def test_the_other_algorithm_is_asked(of):
    algorithm = Continuous(of=of, weight=0.0)
    server = algorithm.init(X, None)
    down = algorithm.broadcast(server)
    plain = of.broadcast(of.init(X, None))
    assert torch.equal(down.x, plain.x)
    mine, theirs = algorithm.memory(down), of.memory(plain)
    assert type(mine) is type(theirs)
    y, grad = torch.tensor([4.0]), torch.tensor([0.5])
    ours = algorithm.direction(grad, y, 0, down, mine)
    assert torch.equal(ours, of.direction(grad, y, 0, plain, theirs))
    assert (algorithm.has_own("row"), algorithm.surveys) == (of.has_own("row"), of.surveys)


def test_settings_out_of_range():
    with pytest.raises(ConfigError, match=r"algorithm\.weight must be zero or positive"):
        Continuous(weight=-1)
