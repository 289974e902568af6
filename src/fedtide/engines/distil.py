"""Whom an algorithm's penalty holds a model to, if that is all it does: it is asked with made-up answers.

weight * KL(teacher || student) has the gradient weight * (softmax(student) - softmax(teacher)) by the logits,
which can be computed elsewhere. Models and features are not numbers here: who looks at them is found out.
"""

import math
from typing import Any

import torch

from fedtide.core.compiled import Teacher
from fedtide.core.trees import leaves
from fedtide.core.types import Outputs, Vector
from fedtide.engines.client import AnyAlgorithm

SCALES = torch.tensor([0.01, 0.3, 1, 3, 10, 40], dtype=torch.float64)  # from "who knows" to "sure"
CLASSES = 4


def teacher_of(algorithm: AnyAlgorithm, down: Any, mine: Any) -> Teacher | None:
    """The model that all clients are held to, and how much; None if the penalty does anything else."""
    numbers = torch.Generator().manual_seed(0)
    scales = torch.cartesian_prod(SCALES, SCALES)  # every pair of student and teacher
    shape = len(scales), CLASSES
    new, old = (
        each[:, None] * torch.randn(shape, generator=numbers, dtype=torch.float64)
        for each in scales.T
    )
    features, y = torch.full(shape, math.nan), torch.full_like(down.x, math.nan)
    asked: list[Vector] = []

    def look(x: Vector) -> Outputs:
        asked.append(x)
        return Outputs(features, old)

    # Of whatever kind an error is: it was asked with stand-ins, and will be asked again with numbers.
    try:
        with torch.enable_grad(), torch.random.fork_rng():
            new.requires_grad_()
            each: Any = algorithm.penalty(y, Outputs(features, new), look, down, mine)
            found = torch.autograd.grad(each.sum(), new)[0]
    except Exception:
        return None
    if len(asked) != 1 or each.shape != shape[:1] or not each.isfinite().all():
        return None
    expected = new.detach().softmax(-1) - old.softmax(-1)
    weight = float((found * expected).sum() / (expected**2).sum())
    sent = any(leaf is asked[0] and leaf.shape == down.x.shape for leaf in leaves(down))
    held = torch.allclose(found, weight * expected, 1e-6, 1e-9 * abs(weight))
    return Teacher(asked[0], weight) if sent and held else None
