"""Gradients: by autograd for one client, by a function transform for many; surveys of all examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from fedtide.algorithms.base import Survey
from fedtide.core.trees import rows
from fedtide.core.types import Batch, Outputs, Vector
from fedtide.tasks.task import Task
from fedtide.training.messages import Broadcast, State

Objective = Callable[[Vector], tuple[Tensor, Any]]  # the loss, and what else was computed with it
Gradient = Callable[[Objective, Vector], tuple[Vector, Any]]

SURVEY_BLOCK = 1024  # examples whose gradient is computed at once


def by_backward(objective: Objective, y: Vector) -> tuple[Vector, Any]:
    """The gradient by plain autograd: fastest for one client at a time."""
    y = y.detach().requires_grad_()
    with torch.enable_grad():
        loss, rest = objective(y)
    return torch.autograd.grad(loss, y)[0], rest


def by_transform(objective: Objective, y: Vector) -> tuple[Vector, Any]:
    """The gradient as a function transform: it can be vmapped over clients."""
    gradient, rest = grad(objective, has_aux=True)(y)
    return gradient, rest


def survey(
    gradient: Gradient,
    task: Task,
    broadcast: Broadcast,
    epochs: int,
    over: bool,
    state: State,
    batch: Batch,
    mine: Any,
    epoch: Tensor,
) -> Any:
    """What the algorithm notes from `batch`, all examples of the client."""

    def loss(block: Batch, y: Vector) -> tuple[Tensor, Any]:
        logits = task.view(y, state.buffers, block.inputs).logits
        return (task.losses(logits, block.targets) * block.mask).sum(), ()

    def whole(y: Vector) -> Vector:
        starts = range(0, len(batch.mask), SURVEY_BLOCK)
        blocks = (rows(batch, slice(first, first + SURVEY_BLOCK)) for first in starts)
        parts = [gradient(partial(loss, block), y)[0] for block in blocks]
        return torch.stack(parts).sum(0) / task.total(batch.targets, batch.mask)

    def outputs(y: Vector) -> Outputs:
        return task.view(y, state.buffers, batch.inputs)

    seen = Survey(whole, outputs, batch.targets, batch.mask, task.layout, epochs, over)
    return broadcast.algorithm.survey(state.y, epoch, seen, broadcast.down, mine)
