"""A whole chunk of clients in one stacked computation: `local_step`, vmapped over [U, dim]."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from fedtide.core.rng import torch_seed
from fedtide.core.trees import joined, repeated, rows, tree_map
from fedtide.core.types import Batch, Nothing, Outputs, Vector, Walk
from fedtide.data.batches import Picks
from fedtide.engines.base import Chunk, InProcess, seeded
from fedtide.engines.collect import Collector, Places
from fedtide.engines.fast.chain import Chain, Extra, descend, gradients
from fedtide.tasks.task import Task
from fedtide.training.client import added, begin, conclude, follow, local_step, mean
from fedtide.training.gradient import by_transform, survey
from fedtide.training.messages import Broadcast, Report, Row, State

Who = slice | NDArray[np.int64]
# From the state, `mine`, the step k, which clients, and the width of their batches.
Step = Callable[[State, Any, int, Who, int], State]

CHUNK_BYTES = {"cpu": 16 << 20}  # about a processor's cache; elsewhere memory is the limit
CHUNK_BYTES_ELSEWHERE = 1 << 30


class Vectorised(InProcess):
    """Clients are sorted by steps, most first, so that those that have finished drop off the end."""

    def cohort(self, broadcast: Broadcast, chunk: Chunk) -> Report:
        address = ("dropout", broadcast.purpose, broadcast.t, int(chunk.ids[0]))
        seed = torch_seed(self.data.seed, *address)
        order = np.argsort(-chunk.walk.steps.cpu().numpy(), kind="stable")
        in_order = bool((order[1:] > order[:-1]).all())
        parts = self.parts(broadcast, chunk)
        places: list[Places] = [part if in_order else order[part] for part in parts]

        def work(at: Places) -> Report:
            return self.train(broadcast, chunk.some(at))

        reports, is_random = Collector(broadcast, chunk), self.traits.is_random
        with seeded(seed) if is_random else nullcontext():
            done = map(work, places) if is_random else self.across(work, places)
            for at, report in zip(places, done, strict=True):
                reports.put(at, report)
        return reports.all()

    def train(self, broadcast: Broadcast, chunk: Chunk) -> Report:
        """One chunk of clients, already sorted by their number of steps."""
        row, counts = chunk.rows, chunk.walk.steps.cpu().numpy()
        state, done = stacked_start(self.task, broadcast, row, len(counts)), []
        step = self.step(broadcast, chunk.picks)
        mine, look = row.mine, partial(self._survey, broadcast, chunk)
        sizes = chunk.picks.mask.sum(2)  # [U, K]
        unfinished = (counts > np.arange(int(counts[0]))[:, None]).sum(1).tolist()
        for k, active in enumerate(unfinished):
            if active < len(state.y):
                done.append(rows(state, slice(active, None)))
                state = rows(state, slice(active))
            mine = look(state, mine, k, False)
            now = rows(mine, slice(active)) if active < len(counts) else mine
            for who, width in self._together(sizes[:active, k]):
                if isinstance(who, slice):
                    state = step(state, now, k, who, width)
                else:
                    some = torch.from_numpy(who).to(state.y.device)
                    new = step(rows(state, some), rows(now, some), k, who, width)
                    state = tree_map(lambda old, n, at=some: old.index_copy(0, at, n), state, new)
        state = joined([state, *reversed(done)])
        return self.concluded(broadcast, chunk, state, mine)

    def concluded(self, broadcast: Broadcast, chunk: Chunk, state: State, mine: Any) -> Report:
        """The reports of clients after their last steps."""
        made = chunk.walk.steps.cpu().numpy().astype(np.int64)
        mine = self._survey(broadcast, chunk, state, mine, made, True)
        if broadcast.algorithm.is_stacked("report"):
            return conclude(broadcast, state, mine, Walk(*(each[:, None] for each in chunk.walk)))
        return vmap(partial(conclude, broadcast))(state, mine, chunk.walk)

    def step(self, broadcast: Broadcast, picks: Picks) -> Step:
        """One local step of a stack of clients: in closed form where there is one, else vmapped."""
        examples, x = self.data.examples, broadcast.down.x
        places, mask = (torch.from_numpy(each).to(x.device) for each in (picks.places, picks.mask))
        targets, weights = examples.targets[places], mask.to(x)
        one = partial(local_step, by_transform, self.task, broadcast)
        move: Callable[[State, Batch, Any, int], State] = (
            partial(chain_step, self.task, self.chain, broadcast, broadcast.is_plain)
            if self.chain and self._fits(self.chain)
            else vmap(one, in_dims=(0, 0, 0, None), randomness="different")
        )

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            with self.fetching():
                luck = rows(picks.luck, (who, k, slice(width)))
                inputs = examples.inputs_at(places[who, k, :width], luck)
            batch = Batch(inputs, targets[who, k, :width], weights[who, k, :width])
            return move(state, batch, mine, k)

        return step

    def _fits(self, chain: Chain) -> bool:
        """Does the chain's first layer take the examples as they are stored?"""
        inputs = self.data.examples.tensor
        return inputs is not None and chain[0].inputs == self.data.examples.width

    def _together(self, sizes: NDArray[np.int64]) -> list[tuple[Who, int]]:
        """Clients whose batches, of these sizes [U], may be stacked, and the width of the stack.

        Rows that only fill the shape are harmless, unless the model mixes the examples of a batch as
        BatchNorm does; then only batches of one size go together.
        """
        if not self.traits.mixes or (sizes == sizes[0]).all():
            return [(slice(len(sizes)), int(sizes.max()))]
        return [(np.flatnonzero(sizes == size), int(size)) for size in np.unique(sizes)]

    def _survey(
        self,
        broadcast: Broadcast,
        chunk: Chunk,
        state: State,
        mine: Any,
        made: NDArray[np.int64] | int,
        over: bool,
    ) -> Any:
        """`mine` after the survey that is due when clients have `made` so many steps, if one is."""
        surveys = broadcast.algorithm.surveys
        if chunk.everything is None or chunk.stride is None:
            return mine
        if surveys == ("begin" if over else "end"):
            return mine
        made = np.broadcast_to(made, len(state.y))
        stride = chunk.stride[: len(made)]
        due = made == 0 if surveys == "begin" else made % stride == 0
        who = np.flatnonzero(over | due)
        if not len(who):
            return mine
        held = rows(chunk.everything, who)
        width = int(held.mask.sum(1).max())
        batch = self.batch(held.places[:, :width], held.mask[:, :width])
        index, epoch = (
            torch.from_numpy(n).to(state.y.device) for n in (who, -(-made // stride)[who])
        )
        epochs = self.data.batching.epochs
        look = vmap(partial(survey, by_transform, self.task, broadcast, epochs, over))
        new = look(rows(state, index), batch, rows(mine, index), epoch)
        if len(who) == len(chunk.stride):  # of all: `mine` may have another form after a survey
            return new
        return tree_map(lambda whole, some: whole.index_copy(0, index, some), mine, new)

    def parts(self, broadcast: Broadcast, chunk: Chunk) -> list[slice]:
        """The groups of clients to stack. They depend on the work alone, not on the machine."""
        x, batch = broadcast.down.x, chunk.picks.places.shape[-1] * self.data.examples.width
        each = 4 * (4 * x.numel() + batch)  # model, gradient, direction, optimiser; one batch
        budget = CHUNK_BYTES.get(x.device.type, CHUNK_BYTES_ELSEWHERE)
        return equal_parts(len(chunk.ids), self.chunk or max(1, budget // int(each)))


def chain_step(
    task: Task,
    chain: Chain,
    broadcast: Broadcast,
    is_plain: bool,
    state: State,
    batch: Batch,
    mine: Any,
    k: int,
) -> State:
    """`local_step` for a stack of clients whose model is a chain of linear layers; writes into `state`."""
    if is_plain:
        seen = descend(chain, state.y, batch, broadcast.lr)
        return state._replace(tally=state.tally + seen)
    algorithm = broadcast.algorithm
    adds = algorithm.has_own("penalty") or algorithm.teacher(broadcast.down) is not None
    extra = partial(penalty_gradients, task, chain, broadcast, state.y, batch, mine)
    gradient, seen = gradients(chain, state.y, batch, extra if adds else None)
    return follow_stacked(broadcast, state, gradient, seen, mine, k)


def penalty_gradients(
    task: Task,
    chain: Chain,
    broadcast: Broadcast,
    y: Tensor,
    batch: Batch,
    mine: Any,
    out: Outputs,
) -> Extra:
    """Gradients of what the algorithm adds to the loss, with respect to model, logits and features."""
    shallow = chain[0].is_head

    def one(y: Vector, out: Outputs, batch: Batch, mine: Any) -> tuple[Tensor, ...]:
        def look(x: Vector) -> Outputs:
            return task.view(x, broadcast.buffers, batch.inputs)

        def penalty(y: Vector, logits: Tensor, features: Tensor) -> Tensor:
            out = Outputs(features, logits)
            return mean(added(task, broadcast, y, out, batch, look, mine), batch, task)

        by = (0, 1) if shallow else (0, 1, 2)
        found: tuple[Tensor, ...] = grad(penalty, argnums=by)(y, out.logits, out.features)
        return found

    along, logits, *features = vmap(one, randomness="different")(y, out, batch, mine)
    return Extra(along, None if shallow else features[0], logits)


def follow_stacked(
    broadcast: Broadcast, state: State, gradient: Tensor, seen: Tensor, mine: Any, k: int
) -> State:
    """`follow` for a stack of clients."""
    one, algorithm = partial(follow, broadcast), broadcast.algorithm
    at_once = broadcast.rule.stacks and algorithm.is_stacked("direction")
    at_once = at_once and not algorithm.has_own("rate")
    every = one if at_once else vmap(one, in_dims=(0, 0, 0, 0, None), randomness="different")
    y, rule = every(gradient, state.y, state.rule, mine, k)
    return State(y, rule, state.buffers, state.tally + seen)


def equal_parts(clients: int, most: int) -> list[slice]:
    """Parts of at most so many clients, for an even number of threads."""
    count = math.ceil(clients / most)
    size = math.ceil(clients / (count + (count > 1 and count % 2)))
    return [slice(k, min(k + size, clients)) for k in range(0, clients, size)]


def stacked_start(task: Task, broadcast: Broadcast, row: Row, count: int) -> State:
    """All clients of a chunk before their first steps, in memory that can be written to."""
    start: State = repeated(begin(task, broadcast, Row(Nothing(), Nothing(), {})), count)
    start = start._replace(rule=row.rule, buffers=row.buffers or start.buffers)
    state: State = tree_map(torch.clone, start)
    return state
