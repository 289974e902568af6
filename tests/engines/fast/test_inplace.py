"""Layers that overwrite their input: the same numbers to the last bit."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from fedtide.engines.fast.inplace import written_in_place

pytestmark = pytest.mark.portable


class Seen(nn.Module):
    """Takes the answer of a pool apart that also tells its indices."""

    def forward(self, pooled):
        values, places = pooled
        return values + places


ROWS = {
    "linear": ((7,), lambda: nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))),
    "inputs": ((7,), lambda: nn.Sequential(nn.ReLU(), nn.Linear(7, 2))),
    "twice": ((7,), lambda: nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.ReLU())),
    "other": ((7,), lambda: nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.ReLU())),
    "1d": ((2, 9), lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.MaxPool1d(2))),
    "2d": ((2, 9, 9), lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2))),
    "3d": ((1, 5, 5, 5), lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d(2))),
    "in place": (
        (2, 9, 9),
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    ),
    "norm": (
        (2, 8, 8),
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)
        ),
    ),
    "overlapping": (
        (2, 8, 8),
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(3, 1, ceil_mode=True)),
    ),
    "indices": (
        (2, 8, 8),
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2, return_indices=True), Seen()
        ),
    ),
    "nested": (
        (2, 12, 12),
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)),
        ),
    ),
}


def numbers(*shape, kind="any"):
    """Inputs; "few" different ones, so that most pools see the same number twice."""
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    if kind == "few":
        found = found.round()
    if kind == "broken":
        found.view(-1)[3] = math.nan
    return found


def passed(module, inputs):
    """What comes out, and the gradients of inputs and parameters."""
    inputs = inputs.clone().requires_grad_()
    given = inputs.detach().clone()
    fed = inputs * 1
    out = module(input=fed)
    out.backward(torch.linspace(-1, 2, out.numel()).view(out.shape))
    assert equal(fed.detach(), given)
    return [out.detach(), inputs.grad, *(p.grad for p in module.parameters())]


def equal(one, other):
    return torch.allclose(one, other, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("kind", ["any", "few", "broken"])
def test_the_same_numbers(row, kind):
    shape, build = ROWS[row]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = build()
    if kind == "few":  # integers all the way: ties are exact
        with torch.no_grad():
            for p in plain.parameters():
                p.mul_(4).round_()
    changed = written_in_place(copy.deepcopy(plain))
    assert type(plain) is nn.Sequential
    inputs = numbers(4, *shape, kind=kind)
    assert all(map(equal, passed(plain, inputs), passed(changed, inputs)))


def test_a_pool_goes_first_and_a_relu_writes_over_what_was_made_for_it():
    row = written_in_place(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)))
    out = row(numbers(3, 1, 6, 6))
    assert out.grad_fn.name() == "ReluBackward0"
    assert out.grad_fn.next_functions[0][0].name() == "MaxPool2DWithIndicesBackward0"
    assert out._version == 1  # it was changed where it was


def test_whoever_listens_sees_what_the_layer_made():
    row, heard = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), []
    row[0].register_forward_hook(lambda module, given, made: heard.append(made))
    expected = row[0](numbers(5, 4))
    written_in_place(row)(numbers(5, 4))
    assert torch.equal(heard[1], expected)
    assert (expected < 0).any()


def test_whoever_waits_for_a_relu_before_its_pool_gets_it():
    row, heard = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)), []
    row[1].register_forward_hook(lambda module, given, made: heard.append(made.shape))
    written_in_place(row)(numbers(3, 1, 6, 6))
    assert heard == [(3, 2, 4, 4)]


@pytest.mark.parametrize("kind", ["full_backward_hook", "full_backward_pre_hook"])
@pytest.mark.parametrize("place", [0, 1])
def test_gradients_can_be_listened_to(kind, place):
    row, heard = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), []
    getattr(row[place], f"register_{kind}")(lambda *seen: heard.append(seen[-1][0].shape))
    written_in_place(row)(numbers(5, 4).requires_grad_()).sum().backward()
    assert heard == [(5, 3)]


def test_whoever_listens_before_a_relu_sees_the_layer_and_may_change_it():
    row = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    row[1].register_forward_pre_hook(lambda module, given: (given[0] + 5,))
    expected = (row[0](numbers(5, 4)) + 5).relu()
    assert torch.equal(written_in_place(row)(numbers(5, 4)), expected)


def test_whoever_listens_everywhere_hears_all():
    row, heard = written_in_place(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))), []
    listens = register_module_forward_hook(lambda module, given, made: heard.append(type(module)))
    try:
        row(numbers(3, 1, 6, 6))
    finally:
        listens.remove()
    assert heard[:3] == [nn.Conv2d, nn.ReLU, nn.MaxPool2d]


def test_what_a_relu_is_asked_to_write_over_is_written_over():
    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(2))

        def forward(self, inputs):
            made = inputs * 1
            return self.parts(made).sum() + made.sum()

    inputs = numbers(3, 1, 6, 6)
    assert torch.equal(Shares()(inputs), written_in_place(Shares())(inputs))


def test_parts_that_a_model_calls_by_itself_write_over_nothing():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, inputs):
            before = self.parts[0](inputs)
            return before, self.parts[1](before)

    before, after = written_in_place(Skips())(numbers(5, 4))
    assert (before < 0).any()
    assert torch.equal(before.relu(), after)
