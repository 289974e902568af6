"""What one client does in a round; every engine computes what these functions say."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedtide.algorithms.base import Look
from fedtide.core.types import Batch, Buffers, Outputs, Training, Vector, Walk
from fedtide.tasks.task import Task
from fedtide.training.explain import check_direction, check_penalty, check_report
from fedtide.training.gradient import Gradient, by_backward, survey
from fedtide.training.messages import Broadcast, Report, Row, State


def begin(task: Task, broadcast: Broadcast, row: Row) -> State:
    """A client before its first local step."""
    x = broadcast.down.x
    tally = x.new_zeros(4 if task.objective.is_weighted else 3)
    return State(x, row.rule, row.buffers or broadcast.buffers, tally)


def local_step(
    gradient: Gradient,
    task: Task,
    broadcast: Broadcast,
    state: State,
    batch: Batch,
    mine: Any,
    k: int,
) -> State:
    """One mini-batch."""

    def look(x: Vector) -> Outputs:
        return task.view(x, broadcast.buffers, batch.inputs)

    def objective(y: Vector) -> tuple[Tensor, Any]:
        out, buffers = task.train(y, state.buffers, batch.inputs)
        each, seen = losses(task, out, batch)
        each = each + added(task, broadcast, y, out, batch, look, mine)
        return mean(each, batch, task), (state.tally + seen, buffers)

    direction, (tally, buffers) = gradient(objective, state.y)
    y, rule = follow(broadcast, direction, state.y, state.rule, mine, k)
    return State(y, rule, buffers, tally)


def losses(task: Task, out: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of each example, and what the batch adds to `State.tally`."""
    each = task.losses(out.logits, batch.targets)
    credit = task.objective.credit(out.logits, batch.targets, each)
    seen = [(part * batch.mask).sum() for part in (each, credit)]
    weights = task.weights(batch.targets)
    weight = [] if weights is None else [(weights * batch.mask).sum()]
    return each, torch.stack([*seen, batch.mask.sum(), *weight]).detach()


def added(
    task: Task, broadcast: Broadcast, y: Vector, out: Outputs, batch: Batch, look: Look, mine: Any
) -> Tensor | float:
    """What the algorithm adds to the loss of each example: its penalty, and its teacher's divergence.

    A penalty is a mean over examples, also where examples do not all weigh 1.
    """
    algorithm, down = broadcast.algorithm, broadcast.down
    extra = algorithm.penalty(y, out, batch, look, down, mine)
    extra = check_penalty(algorithm, extra, len(batch.targets))
    if task.objective.is_weighted and (isinstance(extra, Tensor) or extra):
        extra = extra * task.total(batch.targets, batch.mask) / batch.mask.sum().clamp(min=1)
    teacher = algorithm.teacher(down)
    if teacher is None:
        return extra
    apart = task.objective.divergence(look(teacher.x).logits, out.logits, batch.targets)
    return teacher.weight * apart + extra


def mean(each: Tensor | float, batch: Batch, task: Task) -> Tensor:
    """The weighted mean over the examples of a batch whose mask is 1."""
    return (each * batch.mask).sum() / task.total(batch.targets, batch.mask)


def follow(
    broadcast: Broadcast, grad: Vector, y: Vector, rule: Any, mine: Any, k: int
) -> tuple[Vector, Any]:
    """The move that a gradient leads to: the algorithm's direction, then the local optimiser."""
    algorithm, down = broadcast.algorithm, broadcast.down
    direction = check_direction(algorithm, algorithm.direction(grad, y, k, down, mine), grad)
    return broadcast.rule.step(y, direction, rule, algorithm.rate(broadcast.lr, down, mine))


def conclude(broadcast: Broadcast, state: State, mine: Any, walk: Walk) -> Report:
    """A client's report after its last step, or that of a stack of clients."""
    algorithm = broadcast.algorithm
    up, mine = check_report(algorithm, algorithm.report(state.y, walk, broadcast.down, mine))
    loss, credit, count, *weight = state.tally.unbind(-1)
    counted = torch.where(weight[0] > 0, weight[0], 1) if weight else count
    training = Training(loss / counted, credit / count)
    row = Row(mine, state.rule, state.buffers)
    return Report(up, row, state.buffers, training, walk.steps.reshape(loss.shape))


def client_round(
    task: Task,
    broadcast: Broadcast,
    row: Row,
    batches: Iterable[Batch],
    walk: Walk,
    everything: Batch | None = None,
    stride: int = 1,
    epochs: int = 0,
) -> Report:
    """A whole round of one client: the meaning of every engine.

    `everything` holds all examples of the client where the algorithm surveys them, `stride` is the number of
    steps of a local epoch, `epochs` the number of local epochs (0 where the study counts steps).
    """
    state, mine, surveys = begin(task, broadcast, row), row.mine, broadcast.algorithm.surveys
    look = partial(survey, by_backward, task, broadcast, epochs)
    if everything and surveys == "begin":
        mine = look(False, state, everything, mine, torch.tensor(0))
    if broadcast.is_plain and surveys != "epochs":
        state, batches = sgd_steps(task, broadcast, state, batches), ()
    for k, batch in enumerate(batches):
        if everything and surveys == "epochs" and k % stride == 0:
            mine = look(False, state, everything, mine, torch.tensor(k // stride))
        state = local_step(by_backward, task, broadcast, state, batch, mine, k)
    if everything and surveys != "begin":
        epoch = torch.tensor(-(-int(walk.steps) // stride))
        mine = look(True, state, everything, mine, epoch)
    return conclude(broadcast, state, mine, walk)


def sgd_steps(task: Task, broadcast: Broadcast, state: State, batches: Iterable[Batch]) -> State:
    """All steps of plain SGD, parameter by parameter and in place.

    This avoids building the gradient as one vector and a new model in every step.
    """
    parameters = {name: part.clone() for name, part in task.layout.unpack(state.y).items()}

    def step(batch: Batch, buffers: Buffers) -> tuple[Tensor, Buffers]:
        values = [value.requires_grad_() for value in parameters.values()]
        with torch.enable_grad():
            out, buffers = task.train(parameters, buffers, batch.inputs)
            each, seen = losses(task, out, batch)
            loss = mean(each, batch, task)
        found = torch.autograd.grad(loss, values, allow_unused=True)
        with torch.no_grad():
            for value, gradient in zip(values, found, strict=True):
                if gradient is not None:  # the model uses this parameter
                    value.sub_(gradient, alpha=broadcast.lr)
        return seen, buffers

    tally, buffers = state.tally, state.buffers
    for batch in batches:
        seen, buffers = step(batch, buffers)
        tally = tally + seen
    return State(task.layout.pack(parameters), state.rule, buffers, tally)
