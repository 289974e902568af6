"""Gradients of chains in closed form are those of autograd, and nothing else is taken for a chain."""

import pytest
import torch
from torch import nn

from fedtide.core.types import Batch
from fedtide.engines.fast.chain import chain_of, descend, gradients
from fedtide.engines.trial import is_chain
from fedtide.models.base import EmbedHead
from fedtide.tasks.kinds import Classification
from fedtide.tasks.task import Task

pytestmark = pytest.mark.portable
CHAINS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3, bias=False)),
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    ),
    "linear on linear": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)
    ),
    "halves": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU()),
        nn.Sequential(nn.Identity(), nn.Linear(5, 3)),
    ),
}


class Doubled(nn.Linear):
    """A linear layer that does something else."""

    def forward(self, inputs):
        return 2 * super().forward(inputs)


def shared():
    layer = nn.Linear(6, 6)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def hooked():
    module = CHAINS["linear"]()
    module[1].register_forward_hook(lambda part, inputs, out: out + 1)
    return module


OTHERS = {
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(4, 3)),
    "tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3)),
    "batch norm": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 3)),
    "subclass": lambda: nn.Sequential(nn.Flatten(), Doubled(6, 3)),
    "own forward": lambda: nn.ModuleList([nn.Linear(6, 3)]),
    "ends in relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.ReLU()),
    "begins with relu": lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
    "flattens later": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten()),
    "shared layer": shared,
    "hook": hooked,
    "lone activation": nn.ReLU,
    "head flattens": lambda: EmbedHead(nn.Identity(), nn.Sequential(nn.Flatten(), nn.Linear(6, 3))),
    "head begins with relu": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5)), nn.Sequential(nn.ReLU(), nn.Linear(5, 3))
    ),
}


def two_clients(kind):
    """Two clients with different models and data, one of whom has a batch that is not full."""
    torch.manual_seed(1)
    task = Task(CHAINS[kind]().double())
    y = torch.stack([task.initial.x, task.initial.x.flip(0)])
    inputs = torch.randn(2, 4, 1, 2, 3, dtype=torch.float64)
    targets = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0]], dtype=torch.float64)
    return task, y, Batch(inputs, targets, mask)


@pytest.mark.parametrize("kind", CHAINS)
def test_gradients_are_those_of_autograd(kind):
    task, y, (inputs, targets, mask) = two_clients(kind)
    found, seen = gradients(chain_of(task.structure), y, Batch(inputs, targets, mask))
    for u, real in enumerate((4, 3)):
        x = y[u].clone().requires_grad_()
        logits = task.view(x, {}, inputs[u, :real]).logits
        each = task.losses(logits, targets[u, :real])
        each.mean().backward()
        torch.testing.assert_close(found[u], x.grad, atol=1e-12, rtol=0)
        right = (logits.argmax(-1) == targets[u, :real]).sum()
        expected = torch.tensor([each.sum().item(), right.item(), real], dtype=torch.float64)
        torch.testing.assert_close(seen[u], expected)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_a_chain(kind):
    assert chain_of(OTHERS[kind]()) is None


def test_another_loss_is_not_taken_for_cross_entropy():
    module = CHAINS["linear"]()
    assert is_chain(Task(module))
    assert not is_chain(Task(module, Classification(loss=lambda out, targets: out.square().sum(1))))


@pytest.mark.parametrize("kind", CHAINS)
def test_a_step_inside_the_product_follows_the_gradient(kind):
    task, y, batch = two_clients(kind)
    gradient, seen = gradients(chain_of(task.structure), y, batch)
    expected = y - 0.3 * gradient
    assert torch.equal(descend(chain_of(task.structure), y, batch, 0.3), seen)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)


def test_where_logits_are_equal_the_first_label_is_the_answer():
    task, y, batch = two_clients("linear")
    _, seen = gradients(chain_of(task.structure), torch.zeros_like(y), batch)
    assert seen[:, 1].tolist() == [
        2,
        0,
    ]  # as argmax says: labels 0 among [0, 1, 2, 0] and [2, 2, 1]
