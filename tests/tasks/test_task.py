"""Modules as functions of one vector."""

import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtide.core.errors import ConfigError
from fedtide.core.layout import Layout
from fedtide.core.types import Examples
from fedtide.engines.trial import is_chain, model_traits
from fedtide.models.base import EmbedHead
from fedtide.tasks.task import Task


class Own(nn.Module):
    """A user's module, without embed and head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.scale = nn.Parameter(torch.tensor(2.0))  # no dimensions
        self.last = nn.Linear(5, 3)

    def forward(self, inputs):
        return self.last(torch.tanh(self.norm(self.first(inputs))) * self.scale)


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        yield


def inputs(count=6):
    return torch.randn(count, 4)


def test_pack_and_unpack():
    module = Own()
    layout, named = Layout.of(module), dict(module.named_parameters())
    x = layout.pack(named)
    assert layout.dim == len(x) == 20 + 5 + 5 + 1 + 15 + 3
    assert not x.requires_grad
    parts = layout.unpack(x)
    assert list(parts) == list(named)
    assert all(torch.equal(parts[name], named[name]) for name in named)
    assert torch.equal(layout.pack(parts), x)
    x += 1  # its pieces are windows on the vector ...
    assert torch.equal(parts["scale"], named["scale"] + 1)  # ... which is a copy of the module's


def test_a_layout_is_a_value():
    assert Layout.of(Own()) == Layout.of(Own())
    assert pickle.loads(pickle.dumps(Layout.of(Own()))) == Layout.of(Own())


def test_training_mode_is_that_of_the_module():
    module, batch = Own(), inputs()
    task = Task(module)
    x, buffers = task.initial
    out, after = task.train(x, buffers, batch)
    module.train()
    torch.testing.assert_close(out.logits, module(batch))
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(after[name], buffer)
    assert torch.equal(buffers["norm.running_mean"], torch.zeros(5))  # what was given stays
    assert torch.equal(out.features, out.logits)  # without embed and head


def test_evaluation_mode_is_that_of_the_module():
    module, batch = Own(), inputs()
    task = Task(module)
    _, buffers = task.train(*task.initial, batch)
    viewed = task.view(task.initial.x, buffers, batch)
    module.train()(batch)
    torch.testing.assert_close(viewed.logits, module.eval()(batch))


def test_the_gradient_is_that_of_the_module():
    module, batch, targets = Own(), inputs(), torch.tensor([0, 1, 2, 0, 1, 2])
    task = Task(module)
    y = task.initial.x.clone().requires_grad_()
    out, _ = task.train(y, task.initial.buffers, batch)
    (gradient,) = torch.autograd.grad(task.losses(out.logits, targets).mean(), y)
    cross_entropy(module.train()(batch), targets).backward()
    theirs = task.layout.pack({name: p.grad for name, p in module.named_parameters()})
    torch.testing.assert_close(gradient, theirs)


def test_a_task_keeps_no_values_of_the_module():
    module, batch = Own(), inputs()
    task = Task(module)
    before = task.view(*task.initial, batch).logits
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.norm.running_mean.fill_(9)
    assert torch.equal(task.view(*task.initial, batch).logits, before)
    task.train(*task.initial, batch)  # nor does a task reach back
    assert torch.equal(module.norm.running_mean, torch.full((5,), 9.0))
    assert not any(parameter.any() for parameter in module.parameters())


def test_features_of_a_module_in_two_halves():
    module, batch = EmbedHead(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, 3)), inputs()
    out = Task(module).view(*Task(module).initial, batch)
    torch.testing.assert_close(out.features, module.embed(batch))
    torch.testing.assert_close(out.logits, module(batch))


def test_pickling():
    task, batch = Task(Own()), inputs()
    before = task.train(*task.initial, batch)  # with the copies of this thread already made
    again = pickle.loads(pickle.dumps(task))
    after = again.train(*again.initial, batch)
    assert torch.equal(before[0].logits, after[0].logits)
    assert again.layout == task.layout
    assert torch.equal(again.initial.x, task.initial.x)


class Numbered(nn.Module):
    """A module with a constant that is not saved, one saved buffer, and frozen parameters of another type."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 5).to(torch.bfloat16).requires_grad_(False)
        self.head = nn.Linear(5, 3)
        self.register_buffer("places", torch.arange(5), persistent=False)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, inputs):
        features = self.base(inputs.to(torch.bfloat16)).float() * self.places
        return self.head(features) + self.shift


def test_what_is_frozen_is_not_in_the_vector_and_not_copied():
    module, batch = Numbered(), inputs()
    task = Task(module)
    assert task.layout.names == ("head.weight", "head.bias")
    assert set(task.initial.buffers) == {"shift"}
    assert set(task.frozen) == {"base.weight", "base.bias"}
    assert set(task.constants) == {"places"}
    assert task.frozen["base.weight"].data_ptr() == module.base.weight.data_ptr()
    out, buffers = task.train(*task.initial, batch)
    torch.testing.assert_close(out.logits, module(batch))
    assert set(buffers) == {"shift"}
    again = pickle.loads(pickle.dumps(task))
    torch.testing.assert_close(again.view(*again.initial, batch).logits, module(batch))


def test_a_frozen_model_is_no_chain():
    assert is_chain(Task(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))))
    module = nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 3))
    assert not is_chain(Task(module))


def test_a_constant_that_training_changes_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.register_buffer("seen", torch.zeros(()), persistent=False)

        def forward(self, inputs):
            self.seen += 1
            return self.head(inputs)

    examples = Examples(inputs(), torch.arange(6) % 3)
    with pytest.raises(ConfigError) as caught:
        model_traits(Task(Counting()), examples)
    assert str(caught.value) == (
        "train.model must be a module whose buffers are saved with it if training changes them. Got 'seen'. "
        "Register them with persistent=True."
    )


def test_convolutions_are_noticed():
    assert not Task(Own()).has_convolutions
    assert Task(nn.Sequential(nn.Conv1d(1, 2, 3))).has_convolutions


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double()), 4),
        (nn.Sequential(nn.ReLU()), 0),
    ],
)
def test_mixed_dtypes_are_refused(module, count):
    with pytest.raises(ConfigError) as caught:
        Task(module)
    assert str(caught.value) == (
        "train.model must be a module whose trained parameters have one dtype and one device. "
        f"Got Sequential with {count} parameters of several or none. "
        "Convert them with module.float() before the run; frozen ones may have another dtype."
    )


def test_double_precision_is_kept():
    task = Task(Own().double())
    assert task.initial.x.dtype == torch.float64
    assert task.view(*task.initial, inputs().double()).logits.dtype == torch.float64


def test_tied_parameters_stay_tied():
    """One matrix for two layers, as in language models: one piece of the vector, used twice."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
            self.last.weight = self.first.weight

        def forward(self, inputs):
            return self.last(torch.tanh(self.first(inputs)))

    module, batch = Tied(), inputs()
    task = Task(module)
    assert task.layout.dim == 16 + 4 + 4
    assert task._structure.model.first.weight is task._structure.model.last.weight
    torch.testing.assert_close(task.view(*task.initial, batch).logits, module(batch))
