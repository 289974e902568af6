"""Compiled gradients are those of autograd, and compiled rounds those of torch.optim.SGD."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div
from torch.nn.utils import parameters_to_vector

from fedtide.core.layout import Layout
from fedtide.engines.fast.chain import chain_of
from fedtide.engines.fast.kernels import Moves, StoredBatches, Teacher, gradients, prepare, walk

pytestmark = pytest.mark.portable
EXAMPLES = 90


@pytest.fixture(autouse=True, scope="module")
def _compiled():
    """Compile as engines do, one process after the other."""
    for dtype in (torch.float32, torch.float64):
        prepare(dtype)


def mlp(*widths, bias=True):
    """Linear layers with ReLUs between them."""
    layers = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*layers[:-1])


def some_rows(width, classes, sizes, batch, dtype=np.float64):
    """Batches of clients' steps, of these sizes [U, K], from places that repeat and skip."""
    rng = np.random.default_rng(1)
    sizes = np.array(sizes)
    places = rng.integers(EXAMPLES, size=(*sizes.shape, batch))
    labels = rng.integers(classes, size=EXAMPLES)
    inputs = rng.normal(size=(EXAMPLES, width)).astype(dtype)
    return StoredBatches(inputs, places, labels[places], sizes)


def stack_of(net, count):
    """Models of clients who have already gone different ways."""
    x = parameters_to_vector(net.parameters()).detach()
    return x + 0.1 * torch.randn(count, len(x), generator=torch.Generator().manual_seed(2))


def by_autograd(net, y, rows, u, k=0):
    """Gradient, summed loss and right answers of one batch, as anybody would compute them."""
    at, labels = (torch.from_numpy(each[u, k, : rows.sizes[u, k]]) for each in rows[1:3])
    y = y.clone().requires_grad_()
    logits = functional_call(net, Layout.of(net).unpack(y), (torch.from_numpy(rows.inputs)[at],))
    cross_entropy(logits, labels).backward()
    loss = cross_entropy(logits, labels, reduction="sum").item()
    right = (logits.argmax(1) == labels).sum().item()
    return y.grad, torch.tensor([loss, right, len(at)], dtype=torch.float64)


SHAPES = {
    "linear": (6, 3),
    "one class": (5, 1),
    "two classes": (7, 2),
    "one input": (1, 4),
    "ten classes": (33, 10),
    "mlp": (6, 5, 4),
    "deep": (9, 13, 1, 7, 11, 3),
    "wide": (4, 70, 3),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [1, 2, 5, 32, 33, 71])
def test_gradients_are_those_of_autograd(shape, batch, bias):
    net = mlp(*SHAPES[shape], bias=bias).double()
    sizes = [[batch], [max(batch - 2, 1)], [1]]  # rows beyond a size only fill the shape
    rows = some_rows(SHAPES[shape][0], SHAPES[shape][-1], sizes, batch)
    y = stack_of(net, 3).double()
    before = y.clone()
    found, seen = gradients(chain_of(net), y, rows)
    assert torch.equal(y, before)
    for u in range(3):
        expected, facts = by_autograd(net, y[u], rows, u)
        torch.testing.assert_close(found[u], expected, atol=1e-12, rtol=1e-9)
        torch.testing.assert_close(seen[u], facts, atol=1e-12, rtol=1e-9)


def test_in_single_precision_too():
    net = mlp(50, 20, 10)
    rows = some_rows(50, 10, [[40], [17]], 40, np.float32)
    y = stack_of(net, 2)
    found, _ = gradients(chain_of(net), y, rows)
    assert found.dtype == torch.float32
    for u in range(2):
        torch.testing.assert_close(found[u], by_autograd(net, y[u], rows, u)[0], atol=1e-6, rtol=0)


def test_one_step_by_hand():
    """Two inputs, two classes, weights of zero: every probability is 1/2.

    Examples (1, 2) of class 0 and (3, 5) of class 1. Errors of the logits, halved by the mean:
    (-1/4, 1/4) and (1/4, -1/4). So the gradient of the first row of weights is
    -(1, 2) / 4 + (3, 5) / 4 = (1/2, 3/4), of the second its negative; biases cancel.
    The loss is log 2 twice; a tie is taken for class 0, so one answer is right.
    """
    chain = chain_of(nn.Linear(2, 2))
    inputs = np.array([[1.0, 2], [9, 9], [3, 5]])
    rows = StoredBatches(inputs, np.array([[[0, 2]]]), np.array([[[0, 1]]]), np.array([[2]]))
    y = torch.zeros(1, 6, dtype=torch.float64)
    found, seen = gradients(chain, y, rows)
    assert found.tolist() == [[0.5, 0.75, -0.5, -0.75, 0, 0]]
    assert seen.tolist() == [[pytest.approx(2 * np.log(2)), 1, 2]]
    walk(chain, torch.zeros_like(y[0]), y, None, rows, Moves(0.1))
    torch.testing.assert_close(y[0], -0.1 * found[0])


@pytest.mark.parametrize(("momentum", "decay"), [(0, 0), (0.9, 0), (0, 0.01), (0.5, 0.01)])
@pytest.mark.parametrize("shape", ["linear", "mlp", "deep"])
def test_rounds_are_those_of_sgd(shape, momentum, decay):
    """Three clients of unequal batches; the second stops a step early, the third after its first."""
    net = mlp(*SHAPES[shape]).double()
    sizes = [[5, 5, 2], [5, 3, 0], [4, 0, 0]]
    rows = some_rows(SHAPES[shape][0], SHAPES[shape][-1], sizes, 5)
    start = stack_of(net, 1)[0].double()
    y = torch.full((3, len(start)), torch.nan, dtype=torch.float64)
    v = torch.zeros_like(y) if momentum else None
    seen = walk(chain_of(net), start, y, v, rows, Moves(0.1, momentum, decay))
    for u in range(3):
        x = nn.Parameter(start.clone())
        sgd = torch.optim.SGD([x], 0.1, momentum, weight_decay=decay)
        total = torch.zeros(3, dtype=torch.float64)
        for k in range(np.count_nonzero(sizes[u])):
            x.grad, facts = by_autograd(net, x.detach(), rows, u, k)
            total += facts
            sgd.step()
        torch.testing.assert_close(y[u], x.detach(), atol=1e-12, rtol=1e-9)
        torch.testing.assert_close(seen[u], total, atol=1e-12, rtol=1e-9)


def test_a_teacher_by_hand():
    """As above, held with weight 2 to a teacher whose logits are (log 3, 0): it says 3/4 and 1/4.

    The student says 1/2 and 1/2, so 2 (1/2 - 3/4, 1/2 - 1/4) = (-1/2, 1/2) is added to every example's
    error, halved by the mean: (-1/4, 1/4). Errors are (-1/2, 1/2) and (0, 0). So the gradient of the first
    row of weights is -(1, 2) / 2, of the second its negative; of the biases (-1/2, 1/2). The loss stays.
    """
    chain = chain_of(nn.Linear(2, 2))
    inputs = np.array([[1.0, 2], [9, 9], [3, 5]])
    rows = StoredBatches(inputs, np.array([[[0, 2]]]), np.array([[[0, 1]]]), np.array([[2]]))
    y = torch.empty(1, 6, dtype=torch.float64)
    teacher = torch.tensor([0, 0, 0, 0, np.log(3), 0], dtype=torch.float64)
    seen = walk(chain, 0 * teacher, y, None, rows, Moves(0.1, teacher=Teacher(teacher, 2.0)))
    expected = [0.05, 0.1, -0.05, -0.1, 0.05, -0.05]
    torch.testing.assert_close(y[0], torch.tensor(expected, dtype=torch.float64))
    assert seen.tolist() == [[pytest.approx(2 * np.log(2)), 1, 2]]


@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize("shape", ["linear", "one class", "deep", "wide"])
def test_teachers_are_those_of_autograd(shape, momentum):
    net = mlp(*SHAPES[shape]).double()
    rows = some_rows(SHAPES[shape][0], SHAPES[shape][-1], [[5, 3]], 5)
    start, teacher = stack_of(net, 2).double()
    y, v = torch.empty(1, len(start), dtype=torch.float64), torch.zeros(1, len(start)).double()
    moves = Moves(0.1, momentum, teacher=Teacher(teacher, 0.7))
    walk(chain_of(net), start, y, v if momentum else None, rows, moves)

    def logits(x, k):
        at = torch.from_numpy(rows.places[0, k, : rows.sizes[0, k]])
        return functional_call(net, Layout.of(net).unpack(x), (torch.from_numpy(rows.inputs)[at],))

    x = nn.Parameter(start.clone())
    sgd = torch.optim.SGD([x], 0.1, momentum)
    for k in range(2):
        told = torch.from_numpy(rows.labels[0, k, : rows.sizes[0, k]])
        says, says_teacher = logits(x, k).log_softmax(1), logits(teacher, k).softmax(1)
        held = kl_div(says, says_teacher, reduction="batchmean")
        sgd.zero_grad()
        (cross_entropy(logits(x, k), told) + 0.7 * held).backward()
        sgd.step()
    torch.testing.assert_close(y[0], x.detach(), atol=1e-12, rtol=1e-9)


def test_velocities_go_on_from_where_they_were():
    net = mlp(6, 3).double()
    rows = some_rows(6, 3, [[4, 4]], 4)
    y, v = stack_of(net, 1).double(), torch.zeros(1, 21, dtype=torch.float64)
    at_once, speed = torch.empty_like(y), v.clone()
    walk(chain_of(net), y[0], at_once, speed, rows, Moves(0.1, 0.9))
    for k in range(2):
        one = StoredBatches(rows.inputs, *(field[:, k : k + 1] for field in rows[1:]))
        walk(chain_of(net), y[0].clone(), y, v, one, Moves(0.1, 0.9))
    assert torch.equal(y, at_once)
    assert torch.equal(v, speed)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_a_number_is_noticed(broken):
    net = mlp(6, 5, 3).double()
    rows = some_rows(6, 3, [[4], [4]], 4)
    rows.inputs[rows.places[1, 0, 2]] = broken
    rows.places[0, 0] = rows.places[0, 0, 0]
    rows.inputs[rows.places[0, 0, 0]] = 1
    start = stack_of(net, 1)[0].double()
    y = torch.empty(2, len(start), dtype=torch.float64)
    seen = walk(chain_of(net), start, y, None, rows, Moves(0.1))
    assert torch.isfinite(seen).all(1).tolist() == [True, False]
    assert torch.isfinite(y).all(1).tolist() == [True, False]
