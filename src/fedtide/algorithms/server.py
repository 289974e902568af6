"""Server rules: how the global model follows the mean update of a round.

`average` and `momentum` are FedAvg and FedAvgM (Hsu, Qi and Brown, 2019, arXiv 1909.06335); the others are
FedAdagrad, FedAdam and FedYogi, Algorithm 2 of Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
As in that paper v starts at tau^2 and there is no bias correction.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds
from fedtide.core.types import Nothing, Vector


class ServerVelocity(NamedTuple):
    """State of `Momentum`."""

    v: Vector


class ServerMoments(NamedTuple):
    """State of the adaptive rules."""

    m: Vector  # m_t
    v: Vector  # v_t


@dataclass(frozen=True, kw_only=True)
class ServerRule(ABC):
    """Moves the global model along the mean update `delta`."""

    lr: float = 1.0  # eta

    def __post_init__(self) -> None:
        require(self.lr > 0, "algorithm.server.lr", "positive", self.lr)

    def start(self, x: Vector) -> Any:
        """The rule's state at the beginning of a session."""
        return Nothing()

    @abstractmethod
    def step(self, x: Vector, delta: Vector, state: Any) -> tuple[Vector, Any]:
        """The next global model and the rule's next state."""


@dataclass(frozen=True, kw_only=True)
class ServerAverage(ServerRule):
    """FedAvg: the mean of the clients' models (lr = 1)."""

    def step(self, x: Vector, delta: Vector, state: Nothing) -> tuple[Vector, Nothing]:
        return x + self.lr * delta, state


@dataclass(frozen=True, kw_only=True)
class ServerMomentum(ServerRule):
    """FedAvgM."""

    beta: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta < 1, "algorithm.server.beta", "in [0, 1)", self.beta)

    def start(self, x: Vector) -> ServerVelocity:
        return ServerVelocity(torch.zeros_like(x))

    def step(
        self, x: Vector, delta: Vector, state: ServerVelocity
    ) -> tuple[Vector, ServerVelocity]:
        v = self.beta * state.v + delta
        return x + self.lr * (delta + self.beta * v if self.nesterov else v), ServerVelocity(v)


@dataclass(frozen=True, kw_only=True)
class _Adaptive(ServerRule):
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta1 < 1, "algorithm.server.beta1", "in [0, 1)", self.beta1)
        require(0 <= self.beta2 < 1, "algorithm.server.beta2", "in [0, 1)", self.beta2)
        require(self.tau > 0, "algorithm.server.tau", "positive", self.tau)

    def start(self, x: Vector) -> ServerMoments:
        return ServerMoments(torch.zeros_like(x), torch.full_like(x, self.tau**2))

    def step(self, x: Vector, delta: Vector, state: ServerMoments) -> tuple[Vector, ServerMoments]:
        m = self.beta1 * state.m + (1 - self.beta1) * delta
        v = self.second(state.v, delta.square())
        return x + self.lr * m / (v.sqrt() + self.tau), ServerMoments(m, v)

    @abstractmethod
    def second(self, v: Vector, square: Vector) -> Vector:
        """The next second moment; the one line in which the three rules differ."""


@dataclass(frozen=True, kw_only=True)
class ServerAdagrad(_Adaptive):
    """FedAdagrad."""

    beta1: float = 0.0

    def second(self, v: Vector, square: Vector) -> Vector:
        return v + square


@dataclass(frozen=True, kw_only=True)
class ServerAdam(_Adaptive):
    """FedAdam."""

    def second(self, v: Vector, square: Vector) -> Vector:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True, kw_only=True)
class ServerYogi(_Adaptive):
    """FedYogi."""

    def second(self, v: Vector, square: Vector) -> Vector:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


SERVER_RULES = Kinds(
    "server-rules",
    ServerRule,
    {
        "average": ServerAverage,
        "momentum": ServerMomentum,
        "adagrad": ServerAdagrad,
        "adam": ServerAdam,
        "yogi": ServerYogi,
    },
)
