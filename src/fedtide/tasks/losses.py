"""Losses: one value per example, or per token; the mean over a batch is the engine's business."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds

Function = Callable[[Tensor, Tensor], Tensor]  # outputs [B, ...], targets [B, ...] -> [B]


@dataclass(frozen=True, kw_only=True)
class Loss(ABC):
    """How wrong the outputs for each example are; a function of your own is one, too."""

    @classmethod
    def adopt(cls, found: Any, settings: Mapping[str, Any]) -> Loss | None:
        """Make a loss from a user's function or torch module; None for anything else."""
        is_function = callable(found) and not isinstance(found, type)
        return FunctionLoss(function=found) if is_function and not settings else None

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, [B]."""

    @property
    def is_weighted(self) -> bool:
        """Does `weight` say how much each example counts? Otherwise all count the same."""
        return False

    def weight(self, targets: Tensor) -> Tensor:
        """How much each example counts [B]: a batch's loss is the sum of losses over the sum of weights."""
        return torch.ones_like(targets, dtype=torch.get_default_dtype())

    def problem(self, outputs: int) -> str:
        """What is wrong with the settings for a model with so many outputs; empty if nothing is."""
        return ""


@dataclass(frozen=True, kw_only=True)
class FunctionLoss(Loss):
    """A function of outputs and targets; a function `weight` of targets in an attribute gives weights."""

    function: Function

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.function(outputs, targets)

    @property
    def is_weighted(self) -> bool:
        return callable(getattr(self.function, "weight", None))

    def weight(self, targets: Tensor) -> Tensor:
        return (
            cast(Any, self.function).weight(targets)
            if self.is_weighted
            else super().weight(targets)
        )


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Loss):
    """Minus the logarithm of the target's probability, as `torch.nn.CrossEntropyLoss`.

    With `class_weights`, one for each label, an example weighs as its label does. `smoothing` moves that
    share of the target's probability evenly to all labels.
    """

    class_weights: tuple[float, ...] = ()
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_weights("task.loss.class_weights", self.class_weights)
        require(0 <= self.smoothing < 1, "task.loss.smoothing", "in [0, 1)", self.smoothing)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = constant(self.class_weights, outputs) if self.class_weights else None
        return functional.cross_entropy(
            outputs, targets, weights, reduction="none", label_smoothing=self.smoothing
        )

    @property
    def is_weighted(self) -> bool:
        return bool(self.class_weights)

    def weight(self, targets: Tensor) -> Tensor:
        weights = self.class_weights
        return (
            torch.tensor(weights, device=targets.device)[targets]
            if weights
            else super().weight(targets)
        )

    def problem(self, outputs: int) -> str:
        return "" if len(self.class_weights) in (0, outputs) else "class_weights"


@dataclass(frozen=True, kw_only=True)
class Focal(Loss):
    """Cross entropy times (1 - p)^gamma, p the target's probability (Lin et al., ICCV 2017).

    Examples that are easy count less. `alpha`, one for each label, multiplies the loss as in the paper.
    """

    gamma: float = 2.0
    alpha: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(self.gamma >= 0, "task.loss.gamma", "zero or positive", self.gamma)
        check_weights("task.loss.alpha", self.alpha)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_p = outputs.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        each = -((1 - log_p.exp()) ** self.gamma) * log_p
        return constant(self.alpha, outputs)[targets] * each if self.alpha else each

    def problem(self, outputs: int) -> str:
        return "" if len(self.alpha) in (0, outputs) else "alpha"


@dataclass(frozen=True, kw_only=True)
class Mse(Loss):
    """The squared error, the mean over the numbers of a target."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return mean_of_each((like(outputs, targets) - targets).square())


@dataclass(frozen=True, kw_only=True)
class Mae(Loss):
    """The absolute error, the mean over the numbers of a target."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return mean_of_each((like(outputs, targets) - targets).abs())


@dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """Squared for errors up to `delta`, linear beyond, as `torch.nn.HuberLoss`."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        require(self.delta > 0, "task.loss.delta", "positive", self.delta)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = like(outputs, targets)
        targets = targets.to(outputs.dtype)
        each = functional.huber_loss(outputs, targets, reduction="none", delta=self.delta)
        return mean_of_each(each)


@dataclass(frozen=True, kw_only=True)
class Bce(Loss):
    """Cross entropy of yes and no, as `torch.nn.BCEWithLogitsLoss`; the mean over labels.

    `pos_weight` multiplies the loss of a yes: one number, or one for each label.
    """

    pos_weight: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        many = self.pos_weight if isinstance(self.pos_weight, tuple) else (self.pos_weight,)
        check_weights("task.loss.pos_weight", many)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = like(outputs, targets)
        each = functional.binary_cross_entropy_with_logits(
            outputs,
            targets.to(outputs.dtype),
            reduction="none",
            pos_weight=constant(self.pos_weight, outputs),
        )
        return mean_of_each(each)

    def problem(self, outputs: int) -> str:
        weights = self.pos_weight
        many = isinstance(weights, tuple) and len(weights) != outputs
        return "pos_weight" if many else ""


def constant(numbers: float | tuple[float, ...], outputs: Tensor) -> Tensor:
    """Settings as a tensor of the type of the outputs."""
    return torch.tensor(numbers, dtype=outputs.dtype, device=outputs.device)


def like(outputs: Tensor, targets: Tensor) -> Tensor:
    """The outputs in the shape of the targets: a model may return [B, 1] where targets are [B]."""
    return outputs.reshape(targets.shape)


def mean_of_each(values: Tensor) -> Tensor:
    """The mean of each example's numbers, [B]."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def check_weights(where: str, weights: Sequence[float]) -> None:
    """Raise a `ConfigError` unless all weights are finite numbers above 0."""
    wrong = [weight for weight in weights if not 0 < weight < math.inf]
    require(not wrong, where, "finite numbers above 0", wrong[0] if wrong else None)


LOSSES = Kinds(
    "losses",
    Loss,
    {
        "bce": Bce,
        "cross-entropy": CrossEntropy,
        "focal": Focal,
        "huber": Huber,
        "mae": Mae,
        "mse": Mse,
    },
)
