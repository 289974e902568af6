"""Local rules against torch.optim, and FedNova's weight against its recursion."""

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from fedtide.core.errors import ConfigError
from fedtide.core.types import Nothing
from fedtide.training.optimisers import RULES, Adam, Sgd

STEPS, DIM, LR = 7, 12, 0.1
SGD = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(decay=0.03),
    Sgd(clip=0.5),
    Sgd(momentum=0.8, decay=0.03, clip=0.5),
]
ADAM = [Adam(), Adam(beta1=0.5, beta2=0.9, epsilon=1e-3), Adam(decay=0.03, clip=0.5)]


def optimiser(rule, y):
    if isinstance(rule, Sgd):
        return torch.optim.SGD([y], LR, momentum=rule.momentum, weight_decay=rule.decay)
    betas = (rule.beta1, rule.beta2)
    return torch.optim.Adam([y], LR, betas=betas, eps=rule.epsilon, weight_decay=rule.decay)


def paths(rule, dtype):
    """Where torch and the rule lead on the same gradients, of a curved and noisy function."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(DIM, generator=generator, dtype=dtype)
    noise = torch.randn(STEPS, DIM, generator=generator, dtype=dtype)
    theirs, mine = x.clone().requires_grad_(), x
    torchs, state, pairs = optimiser(rule, theirs), rule.start(x), []
    for each in noise:
        theirs.grad = torch.sin(theirs.detach()) + each
        if rule.clip:
            clip_grad_norm_([theirs], rule.clip)
        torchs.step()
        mine, state = rule.step(mine, torch.sin(mine) + each, state, LR)
        pairs.append((mine, theirs.detach().clone()))
    return pairs


@pytest.mark.portable
@pytest.mark.parametrize("rule", [*SGD, *ADAM], ids=repr)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
def test_rules_walk_as_torch_does(rule, dtype, atol):
    for mine, theirs in paths(rule, dtype):
        torch.testing.assert_close(mine, theirs, atol=atol, rtol=0)


def test_a_small_gradient_is_not_clipped():
    y, small = torch.zeros(2), torch.tensor([0.3, 0.4])
    assert torch.equal(Sgd(clip=1.0).bounded(y, small), small)
    assert Sgd(clip=0.25).bounded(y, small).tolist() == pytest.approx([0.15, 0.2], abs=1e-5)
    assert Sgd(clip=0.25).bounded(y, torch.zeros(2)).tolist() == [0, 0]


def test_decay_is_not_clipped():
    """Clipped to norm 1/4 first, then 2 * y is added, as clip_grad_norm_ before an optimiser does."""
    y = torch.tensor([1.0, 0.0])
    bounded = Sgd(clip=0.25, decay=2.0).bounded(y, torch.tensor([0.3, 0.4]))
    assert bounded.tolist() == pytest.approx([2.15, 0.2], abs=1e-5)


@pytest.mark.parametrize("rule", [Sgd(momentum=0.9), Adam()], ids=repr)
def test_rules_leave_their_arguments_alone(rule):
    y, direction = torch.ones(3), torch.full((3,), 2.0)
    _, state = rule.step(y, direction, rule.start(y), LR)
    before = [part.clone() for part in (y, direction, *state)]
    rule.step(y, direction, state, LR)
    assert all(map(torch.equal, before, (y, direction, *state)))


def test_plain_sgd_needs_no_state():
    assert Sgd().start(torch.zeros(3)) == Nothing()


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_fednova_weight_is_the_recursion(rho):
    """Wang et al.: the buffer of a unit gradient is c <- rho c + 1, and ||a||_1 the sum of all buffers."""
    steps = torch.arange(1, 30, dtype=torch.float64)
    buffer, total, expected = 0.0, 0.0, []
    for _ in steps:
        buffer = rho * buffer + 1
        total += buffer
        expected.append(total)
    rule = Sgd(momentum=rho)
    assert rule.weight(steps).tolist() == pytest.approx(expected, rel=1e-12)
    assert rule.weight(steps.float()).tolist() == pytest.approx(expected, rel=1e-3)


def test_the_weight_is_how_far_unit_gradients_lead():
    """K steps with gradient 1 and lr 1 move a client by exactly ||a||_1."""
    for rule in (Sgd(), Sgd(momentum=0.7)):
        y = torch.zeros(1, dtype=torch.float64)
        state = rule.start(y)
        for _ in range(6):
            y, state = rule.step(y, torch.ones_like(y), state, 1.0)
        weight = rule.weight(torch.tensor(6.0, dtype=torch.float64))
        assert float(-y) == pytest.approx(float(weight))


def test_adam_counts_steps():
    steps = torch.tensor([1.0, 5.0])
    assert torch.equal(Adam().weight(steps), steps)
    assert torch.equal(Sgd().weight(steps), steps)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Sgd, {"momentum": 1}, "train.optimiser.momentum must be in [0, 1). Got 1."),
        (Sgd, {"decay": -1}, "train.optimiser.decay must be zero or positive. Got -1."),
        (Adam, {"clip": -0.5}, "train.optimiser.clip must be zero or positive. Got -0.5."),
        (Adam, {"beta1": 1}, "train.optimiser.beta1 must be in [0, 1). Got 1."),
        (Adam, {"beta2": 1.5}, "train.optimiser.beta2 must be in [0, 1). Got 1.5."),
        (Adam, {"epsilon": 0}, "train.optimiser.epsilon must be positive. Got 0."),
    ],
)
def test_wrong_settings(kind, settings, message):
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert str(caught.value) == message


def test_the_names_of_the_rules():
    assert {"sgd": Sgd, "adam": Adam} == RULES
