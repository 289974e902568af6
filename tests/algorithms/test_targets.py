"""Algorithms whose penalty uses the targets: label smoothing, FedNTD, FedLC, by hand and beside torch."""

from math import exp, log

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtide.algorithms.base import Survey
from fedtide.algorithms.fedavg import Down
from fedtide.algorithms.fedlc import FedLC, Margins
from fedtide.algorithms.fedntd import FedNTD
from fedtide.algorithms.smoothing import LabelSmoothing
from fedtide.algorithms.wrapper import Wrapped
from fedtide.core.types import Batch, Nothing, Outputs

X = torch.zeros(1, dtype=torch.float64)
LOGITS = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.3, -0.7]], dtype=torch.float64)
GLOBAL = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.1, 0.9]], dtype=torch.float64)
TARGETS = torch.tensor([2, 0])
BATCH = Batch(torch.zeros(2, 1), TARGETS, torch.ones(2))
OUT = Outputs(LOGITS, LOGITS)


def look(x):
    return Outputs(GLOBAL, GLOBAL)


def task_loss():
    return cross_entropy(LOGITS, TARGETS, reduction="none")


def test_label_smoothing_is_that_of_torch():
    down = Wrapped(X, Down(X))
    added = LabelSmoothing(smoothing=0.2).penalty(X, OUT, BATCH, look, down, Nothing())
    expected = cross_entropy(LOGITS, TARGETS, reduction="none", label_smoothing=0.2)
    torch.testing.assert_close(task_loss() + added, expected)


def test_fedntd_by_hand():
    """Second example, target 0, tau 1: softmaxes over the logits of labels 1 and 2 alone."""
    local, fixed = (exp(0.3), exp(-0.7)), (exp(0.1), exp(0.9))
    q = [part / sum(fixed) for part in fixed]
    p = [part / sum(local) for part in local]
    expected = 2.0 * sum(a * log(a / b) for a, b in zip(q, p, strict=True))
    found = FedNTD(beta=2.0, tau=1.0).penalty(X, OUT, BATCH, look, Down(X), Nothing())
    assert float(found[1]) == pytest.approx(expected)


def test_fedntd_does_not_depend_on_the_true_logit():
    other = LOGITS.clone()
    other[0, 2], other[1, 0] = 9.0, -9.0
    ntd = FedNTD(tau=2.0)
    found = (
        ntd.penalty(X, Outputs(o, o), BATCH, look, Down(X), Nothing()) for o in (LOGITS, other)
    )
    torch.testing.assert_close(*found)


def test_fedlc_by_hand():
    """16 examples of label 0, 1 of label 1, none of label 2: margins 1/2, 1 and 100, times tau."""
    targets = torch.tensor([0] * 16 + [1] + [2])
    mask = torch.ones(18, dtype=torch.float64)
    mask[-1] = 0  # a filled row
    outputs = Outputs(torch.zeros(18, 3), torch.zeros(18, 3))
    survey = Survey(None, lambda y: outputs, targets, mask, None, 1, False)
    lc = FedLC(tau=2.0)
    margins = lc.survey(X, torch.tensor(0), survey, Down(X), Nothing())
    assert margins.margin.tolist() == pytest.approx([1.0, 2.0, 200.0])
    margins = Margins(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    added = lc.penalty(X, OUT, BATCH, look, Down(X), margins)
    calibrated = [0.0 - 0.5, 0.3 - 1.0, -0.7 - 2.0]
    expected = -log(exp(calibrated[0]) / sum(map(exp, calibrated)))
    assert float((task_loss() + added)[1]) == pytest.approx(expected)
