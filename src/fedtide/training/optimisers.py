"""Local optimisers as pure steps: the same arithmetic as torch.optim, on one flat vector or a stack of them.

Every operation here passes over whole models, so each is one of torch's that does two things in one pass.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.types import Nothing, Vector


class Velocity(NamedTuple):
    """State of SGD with momentum."""

    v: Vector


class Moments(NamedTuple):
    """State of Adam."""

    m: Vector
    v: Vector
    made: Tensor  # [1]: steps so far


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """A local optimiser; `carried` keeps its state from one round of a client to its next."""

    decay: float = 0.0  # weight decay, added to the gradient
    clip: float = 0.0  # largest norm of the gradient; 0 does not clip
    carried: bool = False

    def __post_init__(self) -> None:
        require(self.decay >= 0, "train.optimiser.decay", "zero or positive", self.decay)
        require(self.clip >= 0, "train.optimiser.clip", "zero or positive", self.clip)

    @property
    def stacks(self) -> bool:
        """Does `step` take many clients at once, [U, dim], as well as one?"""
        return False

    @property
    def is_plain(self) -> bool:
        """Is a step y - lr * direction, and nothing else?"""
        return False

    def start(self, y: Vector) -> Any:
        """The optimiser's state before its first step."""
        return Nothing()

    @abstractmethod
    def step(
        self, y: Vector, direction: Vector, state: Any, lr: float | Tensor
    ) -> tuple[Vector, Any]:
        """One local step: the next model and the next state."""

    def weight(self, steps: Tensor) -> Tensor:
        """FedNova's ||a||_1: how often gradients count in the sum of all steps."""
        return steps

    def bounded(self, y: Vector, direction: Vector) -> Vector:
        """The direction after clipping, with weight decay added."""
        if self.clip:
            norm = direction.norm(dim=-1, keepdim=True)
            direction = direction * (self.clip / (norm + 1e-6)).clamp(max=1)
        return torch.add(direction, y, alpha=self.decay) if self.decay else direction


@dataclass(frozen=True, kw_only=True)
class Sgd(Rule):
    """Stochastic gradient descent, with heavy-ball momentum if asked."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, "train.optimiser.momentum", "in [0, 1)", self.momentum)

    @property
    def stacks(self) -> bool:
        return type(self).step is Sgd.step  # not so for a user's own rule

    @property
    def is_plain(self) -> bool:
        return type(self) is Sgd and not (self.momentum or self.decay or self.clip)

    def start(self, y: Vector) -> Velocity | Nothing:
        return Velocity(torch.zeros_like(y)) if self.momentum else Nothing()

    def step(
        self, y: Vector, direction: Vector, state: Any, lr: float | Tensor
    ) -> tuple[Vector, Any]:
        direction = self.bounded(y, direction)
        if self.momentum:
            direction = torch.add(direction, state.v, alpha=self.momentum)
            state = Velocity(direction)
        if isinstance(lr, Tensor):
            return torch.addcmul(y, direction, lr, value=-1), state
        return torch.add(y, direction, alpha=-lr), state

    def weight(self, steps: Tensor) -> Tensor:
        rho = self.momentum
        if self.carried:  # a gradient goes on counting in later rounds: 1 + rho + rho^2 + ... times
            return steps / (1 - rho)
        # The sum over j = 1..K of (1 - rho^j) / (1 - rho).
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


@dataclass(frozen=True, kw_only=True)
class Adam(Rule):
    """Adam with bias correction."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta1 < 1, "train.optimiser.beta1", "in [0, 1)", self.beta1)
        require(0 <= self.beta2 < 1, "train.optimiser.beta2", "in [0, 1)", self.beta2)
        require(self.epsilon > 0, "train.optimiser.epsilon", "positive", self.epsilon)

    @property
    def stacks(self) -> bool:
        return type(self).step is Adam.step

    def start(self, y: Vector) -> Moments:
        return Moments(torch.zeros_like(y), torch.zeros_like(y), y.new_zeros(1))

    def step(
        self, y: Vector, direction: Vector, state: Any, lr: float | Tensor
    ) -> tuple[Vector, Any]:
        direction = self.bounded(y, direction)
        made = state.made + 1
        m = torch.lerp(state.m, direction, 1 - self.beta1)
        v = torch.addcmul(self.beta2 * state.v, direction, direction, value=1 - self.beta2)
        size = lr / (1 - self.beta1**made)
        root = (1 - self.beta2**made).sqrt()  # the bias of v, under the root
        spread = (v.sqrt() / root).add_(self.epsilon)
        return torch.addcdiv(y, m * size, spread, value=-1), Moments(m, v, made)


RULES = Kinds("optimisers", Rule, {"sgd": Sgd, "adam": Adam})
