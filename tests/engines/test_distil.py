"""Penalties that hold a model to another one's answers are recognised, and nothing is taken for one."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from fedtide.algorithms.base import Context
from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.moon import Moon
from fedtide.algorithms.scaffold import Scaffold
from fedtide.engines.distil import teacher_of
from fedtide.tasks.task import Layout

X, CLASSES = torch.arange(6.0), 4
CONTEXT = Context(Layout(("x",), (X.shape,)), 3)


def asked(algorithm):
    down = algorithm.broadcast(algorithm.init(X, CONTEXT))
    return teacher_of(algorithm, down, algorithm.memory(down), CLASSES), down


@pytest.mark.parametrize("weight", [0.3, 1.0, 1e-6, 40.0])
@pytest.mark.parametrize("of", [FedAvg(), FedProx(mu=0.1), Scaffold()])
def test_the_teacher_and_how_much_it_counts(of, weight):
    found, down = asked(Continuous(of=of, weight=weight))
    assert found.x is down.teacher
    assert found.weight == pytest.approx(weight)


class Mine(NamedTuple):
    """What a client keeps."""

    x: Tensor
    weight: Tensor
    rounds: Tensor


@dataclass(frozen=True, kw_only=True)
class Own(FedAvg):
    """Somebody's own penalty: `kind` says which."""

    kind: str = "kl"

    def memory(self, down):
        return Mine(down.x.clone(), torch.tensor(2.0), torch.tensor(3))

    def penalty(self, y, out, look, down, mine):
        seen = look({"memory": mine.x, "made": 1 * down.x}.get(self.kind, down.x))
        old, new = seen.logits.softmax(-1), out.logits.log_softmax(-1)
        each = kl_div(new, old, reduction="none").sum(-1)
        return {
            "kl": lambda: 0.2 * each,
            "temperature": lambda: kl_div(
                (out.logits / 2).log_softmax(-1), old, reduction="none"
            ).sum(-1),
            "backwards": lambda: (new.exp() * (new - old.log())).sum(-1),
            "squares": lambda: ((out.logits - seen.logits) ** 2).sum(-1),
            "scalar": lambda: each.mean(),
            "number": lambda: 0.0,
            "zeros": lambda: torch.zeros(len(each)),
            "y": lambda: each + (y - down.x).square().sum(),
            "features": lambda: each + out.features.sum(-1),
            "other features": lambda: each + seen.features.sum(-1),
            "twice": lambda: each + 0 * look(down.x).logits.sum(-1),
            "memory": lambda: each,
            "own weight": lambda: mine.weight * each,
            "own rounds": lambda: mine.rounds * each,
            "old labels": lambda: kl_div(
                out.logits[..., :2].log_softmax(-1),
                seen.logits[..., :2].softmax(-1),
                reduction="none",
            ).sum(-1),
            "by the batch": lambda: each / len(each),
            "if all": lambda: each * (each.mean() > 30),
            "one draw": lambda: each * torch.rand(()),
            "some": lambda: each * torch.arange(len(each)),
            "if sure": lambda: each * (old.max(-1).values > 0.99),
            "if unsure": lambda: each * (old.max(-1).values < 0.26),
            "at most": lambda: each.clamp(max=30.0),
            "draws": lambda: each * torch.rand(len(each)),
            "made": lambda: each,
            "error": lambda: each + "no number",
        }[self.kind]()


def test_a_mean_over_classes_counts_for_less():
    class Mean(Own):
        def penalty(self, y, out, look, down, mine):
            old = look(down.x).logits.softmax(-1)
            return kl_div(out.logits.log_softmax(-1), old, reduction="none").mean(-1)

    assert asked(Mean())[0].weight == pytest.approx(1 / CLASSES)


def test_somebody_elses_teacher_is_found_too():
    found, down = asked(Own())
    assert found.x is down.x
    assert found.weight == pytest.approx(0.2)


KINDS = (
    "temperature", "backwards", "squares", "scalar", "number", "zeros", "y", "features",
    "other features", "twice", "memory", "own weight", "own rounds", "old labels",
    "by the batch", "if all", "one draw", "some", "if sure", "if unsure",
    "at most", "draws", "made", "error",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_else_a_penalty_does_is_noticed(kind):
    with torch.random.fork_rng():
        assert asked(Own(kind=kind))[0] is None


@pytest.mark.parametrize(
    "algorithm",
    [Continuous(weight=0.0), Moon(), Continuous(loss="relation"), Continuous(of=Moon()), FedAvg()],
)
def test_others_hold_to_nobody_or_to_more(algorithm):
    assert asked(algorithm)[0] is None
