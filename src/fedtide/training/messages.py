"""The messages of a round: what goes to clients, what they remember, and what they return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.algorithms.base import Algorithm
from fedtide.core.types import Buffers, Training, Vector, Walk
from fedtide.training.optimisers import Rule

AnyAlgorithm = Algorithm[Any, Any, Any, Any]


class Broadcast(NamedTuple):
    """What the server sends to every client of a cohort."""

    algorithm: AnyAlgorithm
    rule: Rule  # the local optimiser
    lr: float
    down: Any  # the algorithm's message
    buffers: Buffers
    t: int
    purpose: str = (
        "batch"  # "gradient <v>" in gradient rounds; part of the address of random numbers
    )

    def walk(self, steps: NDArray[np.int64], ages: NDArray[np.int64]) -> Walk:
        """The walk of clients that make `steps` local steps and have existed for `ages` aggregations."""
        made, age = (torch.as_tensor(each).to(self.down.x) for each in (steps, ages))
        return Walk(made, torch.full_like(made, self.lr), self.rule.weight(made), age)

    @property
    def is_plain(self) -> bool:
        """Is a local step plain SGD, without anything that the algorithm adds?"""
        own = map(self.algorithm.has_own, ("penalty", "direction", "rate"))
        return self.rule.is_plain and not any(own) and self.algorithm.teacher(self.down) is None


class State(NamedTuple):
    """A client between two local steps."""

    y: Vector
    rule: Any  # state of the local optimiser
    buffers: Buffers
    tally: Tensor  # [3]: summed loss, summed credit, examples seen; [4] with their weight, if they differ


class Row(NamedTuple):
    """What a client remembers between rounds."""

    mine: Any  # the algorithm's memory
    rule: Any  # the optimiser's state, if it is carried
    buffers: Buffers  # its own buffers, if they stay local


class Report(NamedTuple):
    """What a client returns after its round, or many clients, stacked."""

    up: Any
    row: Row | Any  # what it remembers; Nothing() in messages: it stays with the client
    buffers: Buffers
    training: Training
    steps: Tensor
