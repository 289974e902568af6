"""What one client does in a round; every engine runs these functions."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedtide.algorithms.base import Algorithm, Survey
from fedtide.core.types import Batch, Buffers, Outputs, Training, Vector, Walk
from fedtide.engines.fast.chain import Extra, descend, gradients
from fedtide.tasks.task import Task
from fedtide.training.optimisers import Rule

AnyAlgorithm = Algorithm[Any, Any, Any, Any]
Objective = Callable[[Vector], tuple[Tensor, Any]]  # the loss, and what else came of it
Gradient = Callable[[Objective, Vector], tuple[Vector, Any]]

SURVEY_BLOCK = 1024  # examples whose gradient is computed at once


class Lesson(NamedTuple):
    """What all clients of a round are given."""

    task: Task
    algorithm: AnyAlgorithm
    rule: Rule
    lr: float
    down: Any
    buffers: Buffers
    epochs: int = 0  # local epochs of a round; 0 where steps are counted


class State(NamedTuple):
    """Where a client stands between two local steps."""

    y: Vector
    rule: Any  # state of the local optimiser
    buffers: Buffers
    tally: Tensor  # [3]: summed loss, correct answers, examples seen


class Row(NamedTuple):
    """What a client keeps between rounds."""

    mine: Any  # the algorithm's memory
    rule: Any  # the optimiser's state, if it is carried
    buffers: Buffers  # its own buffers, if they stay local


class Whole(NamedTuple):
    """All that a client holds, for an algorithm that surveys."""

    batch: Batch
    stride: int  # steps of a local epoch


class Report(NamedTuple):
    """What comes of a client's round."""

    up: Any
    row: Row
    buffers: Buffers
    training: Training


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


def begin(lesson: Lesson, row: Row) -> State:
    """A client at the start of its round."""
    x = lesson.down.x
    return State(x, row.rule, row.buffers or lesson.buffers, x.new_zeros(3))


def local_step(
    gradient: Gradient, lesson: Lesson, state: State, batch: Batch, mine: Any, k: int
) -> State:
    """One mini-batch."""
    task, algorithm, down = lesson.task, lesson.algorithm, lesson.down

    def look(x: Vector) -> Outputs:
        return task.view(x, lesson.buffers, batch.inputs)

    def objective(y: Vector) -> tuple[Tensor, Any]:
        out, buffers = task.train(y, state.buffers, batch.inputs)
        each, seen = judged(task, out, batch)
        each = each + algorithm.penalty(y, out, look, down, mine)
        return mean(each, batch), (state.tally + seen, buffers)

    direction, (tally, buffers) = gradient(objective, state.y)
    y, rule = follow(lesson, direction, state.y, state.rule, mine, k)
    return State(y, rule, buffers, tally)


def judged(task: Task, out: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss of each example, and what the batch adds to `State.tally`."""
    each = task.loss(out.logits, batch.targets)
    right = (out.logits.argmax(-1) == batch.targets).to(batch.mask.dtype)
    seen = [(part * batch.mask).sum() for part in (each, right)]
    return each, torch.stack([*seen, batch.mask.sum()]).detach()


def mean(each: Tensor | float, batch: Batch) -> Tensor:
    """Over the examples of a batch that count."""
    return (each * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def descended(lesson: Lesson, state: State, batches: Iterable[Batch]) -> State:
    """All steps of a client whom nothing moves but its gradient: parameter by parameter, in place.

    Without the gradient as one vector and a new model in every step.
    """
    task = lesson.task
    parameters = {name: part.clone() for name, part in task.layout.unpack(state.y).items()}

    def step(batch: Batch, buffers: Buffers) -> tuple[Tensor, Buffers]:
        values = [value.requires_grad_() for value in parameters.values()]
        with torch.enable_grad():
            out, buffers = task.train(parameters, buffers, batch.inputs)
            each, seen = judged(task, out, batch)
            loss = mean(each, batch)
        found = torch.autograd.grad(loss, values, allow_unused=True)
        with torch.no_grad():
            for value, gradient in zip(values, found, strict=True):
                if gradient is not None:  # the model uses this parameter
                    value.sub_(gradient, alpha=lesson.lr)
        return seen, buffers

    tally, buffers = state.tally, state.buffers
    for batch in batches:
        seen, buffers = step(batch, buffers)
        tally = tally + seen
    return State(task.layout.pack(parameters), state.rule, buffers, tally)


def follow(
    lesson: Lesson, grad: Vector, y: Vector, rule: Any, mine: Any, k: int
) -> tuple[Vector, Any]:
    """The move that a gradient leads to: the algorithm's direction, then the local optimiser."""
    direction = lesson.algorithm.direction(grad, y, k, lesson.down, mine)
    lr = lesson.algorithm.rate(lesson.lr, lesson.down, mine)
    return lesson.rule.step(y, direction, rule, lr)


def chain_step(lesson: Lesson, state: State, batch: Batch, mine: Any, k: int) -> State:
    """`local_step` for a stack of clients whose model is a chain of linear layers; writes into `state`."""
    assert lesson.task.chain is not None
    if descends(lesson):
        seen = descend(lesson.task.chain, state.y, batch, lesson.lr)
        return state._replace(tally=state.tally + seen)
    penalises = lesson.algorithm.has_own("penalty")
    added = partial(penalised, lesson, state.y, batch, mine) if penalises else None
    gradient, seen = gradients(lesson.task.chain, state.y, batch, added)
    return followed(lesson, state, gradient, seen, mine, k)


def penalised(lesson: Lesson, y: Tensor, batch: Batch, mine: Any, out: Outputs) -> Extra:
    """The gradient of the algorithm's penalty: by each client's model, its logits and its features."""
    assert lesson.task.chain is not None
    shallow = lesson.task.chain[0].is_head

    def one(y: Vector, out: Outputs, batch: Batch, mine: Any) -> tuple[Tensor, ...]:
        def look(x: Vector) -> Outputs:
            return lesson.task.view(x, lesson.buffers, batch.inputs)

        def penalty(y: Vector, logits: Tensor, features: Tensor) -> Tensor:
            out = Outputs(features, logits)
            return mean(lesson.algorithm.penalty(y, out, look, lesson.down, mine), batch)

        by = (0, 1) if shallow else (0, 1, 2)
        found: tuple[Tensor, ...] = grad(penalty, argnums=by)(y, out.logits, out.features)
        return found

    along, logits, *features = vmap(one, randomness="different")(y, out, batch, mine)
    return Extra(along, None if shallow else features[0], logits)


def followed(
    lesson: Lesson, state: State, gradient: Tensor, seen: Tensor, mine: Any, k: int
) -> State:
    """`follow` for a stack of clients."""
    one = partial(follow, lesson)
    move = one if stacks(lesson) else vmap(one, in_dims=(0, 0, 0, 0, None), randomness="different")
    y, rule = move(gradient, state.y, state.rule, mine, k)
    return State(y, rule, state.buffers, state.tally + seen)


def descends(lesson: Lesson) -> bool:
    """Is a local step plain SGD, with nothing of the algorithm's in it?"""
    own = map(lesson.algorithm.has_own, ("penalty", "direction", "rate"))
    return lesson.rule.is_plain and not any(own)


def stacks(lesson: Lesson) -> bool:
    """Does the move take many clients at once as it is, so that it needs no vmap?"""
    algorithm, rule = lesson.algorithm, lesson.rule
    return rule.stacks and algorithm.stacks_in("direction") and not algorithm.has_own("rate")


def conclude(lesson: Lesson, state: State, mine: Any, walk: Walk) -> Report:
    """A client after its last step, or a stack of them."""
    up, mine = lesson.algorithm.report(state.y, walk, lesson.down, mine)
    loss, right, count = state.tally.unbind(-1)
    training = Training(loss / count, right / count)
    return Report(up, Row(mine, state.rule, state.buffers), state.buffers, training)


def surveyed(
    gradient: Gradient,
    lesson: Lesson,
    over: bool,
    state: State,
    batch: Batch,
    mine: Any,
    epoch: Tensor,
) -> Any:
    """What the algorithm notes at a look at all of the client's examples."""
    task = lesson.task

    def loss(block: Batch, y: Vector) -> tuple[Tensor, Any]:
        logits = task.view(y, state.buffers, block.inputs).logits
        return (task.loss(logits, block.targets) * block.mask).sum(), ()

    def whole(y: Vector) -> Vector:
        blocks = map(Batch, *(torch.split(field, SURVEY_BLOCK) for field in batch))
        parts = [gradient(partial(loss, block), y)[0] for block in blocks]
        return torch.stack(parts).sum(0) / batch.mask.sum().clamp(min=1)

    def outputs(y: Vector) -> Outputs:
        return task.view(y, state.buffers, batch.inputs)

    survey = Survey(whole, outputs, batch.targets, batch.mask, task.layout, lesson.epochs, over)
    return lesson.algorithm.survey(state.y, epoch, survey, lesson.down, mine)


def client_round(
    lesson: Lesson, row: Row, batches: Iterable[Batch], walk: Walk, whole: Whole | None = None
) -> Report:
    """A whole round of one client: this is what every engine means."""
    state, mine, paced = begin(lesson, row), row.mine, lesson.algorithm.surveys == "epochs"
    if descends(lesson) and not paced:
        state, batches = descended(lesson, state, batches), ()
    for k, batch in enumerate(batches):
        if whole and paced and k % whole.stride == 0:
            epoch = torch.tensor(k // whole.stride)
            mine = surveyed(by_backward, lesson, False, state, whole.batch, mine, epoch)
        state = local_step(by_backward, lesson, state, batch, mine, k)
    if whole:
        epoch = torch.tensor(-(-int(walk.steps) // whole.stride))
        mine = surveyed(by_backward, lesson, True, state, whole.batch, mine, epoch)
    return conclude(lesson, state, mine, walk)
