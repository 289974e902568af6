"""Linear models and MLPs on a CPU: whole local rounds in compiled code, client by client."""

from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves, repeated, rows, tree_map
from fedtide.data.batches import Picks
from fedtide.engines.base import Chunk
from fedtide.engines.collect import Collector
from fedtide.engines.fast.affine import Affine, decompose, matches, verify
from fedtide.engines.fast.chain import Chain
from fedtide.engines.fast.compiler import MADE_WITH, TARGET
from fedtide.engines.fast.kernels import (
    Moves,
    StoredBatches,
    gradients,
    prepare,
    walk,
)
from fedtide.engines.vectorised import (
    CHUNK_BYTES,
    Step,
    Vectorised,
    Who,
    equal_parts,
    follow_stacked,
)
from fedtide.training.messages import AnyAlgorithm, Broadcast, Report, Row, State
from fedtide.training.optimisers import Sgd

GRAIN = 2_000_000  # multiplications of a step that are worth its calls from Python
MOST_PARTS = 8
# Where a round is one call: models that train together, and models whose uploads are made together.
BLOCK_BYTES, REPORT_BYTES = 64 << 20, 2 << 20


class Compiled(Vectorised):
    """Runs a whole local round in one kernel call where steps are those of SGD with an affine `direction`.

    That is grad + weight * (y - anchor) + shift, with or without a teacher. Otherwise only gradients are
    compiled, and with a penalty nothing is: the round is then that of `Vectorised`.
    """

    made_with, target = MADE_WITH, TARGET

    def __post_init__(self) -> None:
        super().__post_init__()
        examples, targets, outputs = (
            self.data.examples,
            self.data.examples.targets,
            self._layers[-1].outputs,
        )
        wrong = targets[(targets < 0) | (targets >= outputs)]
        if len(wrong):  # compiled code would not notice
            raise EngineError(
                f"train.model must have an output for every label. Got {outputs} outputs and the "
                f"label {int(wrong[0])}. Give its last layer more outputs, or mend the labels."
            )
        inputs = cast(Tensor, examples.tensor)  # as `kinds.py` has made sure
        self._inputs = inputs.flatten(1).contiguous().numpy()
        # Memory for models, used again and again: new memory each round would fragment the heap.
        self._room: Tensor | None = None
        self._verified: dict[int, tuple[AnyAlgorithm, bool]] = {}  # by id: is `direction` affine?
        prepare(self.task.initial.x.dtype)

    @property
    def _layers(self) -> Chain:
        assert self.chain is not None  # `kinds.py` builds this engine for chains only
        return self.chain

    def cohort(self, broadcast: Broadcast, chunk: Chunk) -> Report:
        moves = self._moves(broadcast, chunk.rows.mine)
        if moves is None:
            return super().cohort(broadcast, chunk)
        reports, stored = Collector(broadcast, chunk), self._stored(chunk.picks)
        steps, each = chunk.walk.steps.numpy(), broadcast.down.x.nbytes
        stored.sizes[np.arange(stored.sizes.shape[1]) >= steps[:, None]] = 0
        for block in equal_parts(len(steps), max(1, BLOCK_BYTES // each)):
            state = self._walk(broadcast, chunk.rows, stored, moves, block)
            for part in equal_parts(len(state.y), max(1, REPORT_BYTES // each)):
                at = slice(block.start + part.start, block.start + part.stop)
                reports.put(at, self._report(broadcast, chunk.some(at), rows(state, part)))
        return reports.all()

    def _report(self, broadcast: Broadcast, chunk: Chunk, state: State) -> Report:
        report = self.concluded(broadcast, chunk, state, chunk.rows.mine)
        if any(map(partial(share_memory, self._room), leaves(report))):
            self._room = None  # the report holds the models themselves
        return report

    def _walk(
        self, broadcast: Broadcast, row: Row, stored: StoredBatches, moves: Moves, block: slice
    ) -> State:
        """The clients of a block after their last steps."""
        stored, moves, row = stored.some(block), moves.some(block), rows(row, block)
        x, chain, clients = broadcast.down.x, self._layers, len(stored.places)
        if self._room is None or len(self._room) < clients:
            self._room = x.new_empty(clients, len(x))
        y, rule = self._room[:clients], tree_map(torch.clone, row.rule)
        buffers = row.buffers or repeated(broadcast.buffers, clients)

        def work(part: slice) -> Tensor:
            v = rule.v[part] if moves.momentum else None
            return walk(chain, x, y[part], v, stored.some(part), moves.some(part))

        made = (stored.sizes > 0).sum(1)
        seen = torch.cat(list(self.across(work, self._shares(made))))
        return State(y, rule, buffers, seen)

    def _moves(self, broadcast: Broadcast, mine: Any) -> Moves | None:
        """The steps of a round as a kernel computes them; None if they are of another form."""
        rule, algorithm = broadcast.rule, broadcast.algorithm
        if type(rule) is not Sgd or rule.clip or algorithm.surveys in ("begin", "epochs"):
            return None
        if algorithm.has_own("rate") or algorithm.has_own("penalty"):
            return None
        teacher = algorithm.teacher(broadcast.down)
        moves = Moves(broadcast.lr, rule.momentum, rule.decay, teacher=teacher)
        if not algorithm.has_own("direction"):
            return moves
        added = self._affine(broadcast, mine)
        if added is None:
            return None
        return moves._replace(weight=added.weight, anchor=added.anchor, shift=added.shift)

    def _affine(self, broadcast: Broadcast, mine: Any) -> Affine | None:
        """What `direction` adds to a gradient, if that is affine in y."""
        algorithm, down = broadcast.algorithm, broadcast.down
        if not algorithm.is_stacked("direction"):
            return None
        added = decompose(algorithm.direction, down, mine)
        if added is None or not matches(added, down.x, mine):
            return None
        if id(algorithm) not in self._verified:
            holds = verify(algorithm.direction, down, rows(mine, 0), down.x)
            self._verified[id(algorithm)] = algorithm, holds
        return added if self._verified[id(algorithm)][1] else None

    def parts(self, broadcast: Broadcast, chunk: Chunk) -> list[slice]:
        """Equal parts: enough for a few threads, but large enough to be worth a call from Python."""
        if self.chunk or self._adds_to_loss(broadcast):
            return super().parts(broadcast, chunk)
        clients, dim = len(chunk.ids), broadcast.down.x.numel()
        worth = GRAIN // (dim * chunk.picks.places.shape[-1])
        fits = CHUNK_BYTES["cpu"] // (16 * dim)  # model, gradient, direction, optimiser
        return equal_parts(clients, max(1, min(fits, max(worth, ceil(clients / MOST_PARTS)))))

    def step(self, broadcast: Broadcast, picks: Picks) -> Step:
        if self._adds_to_loss(broadcast):
            return super().step(broadcast, picks)
        stored = self._stored(picks)

        def step(state: State, mine: Any, k: int, who: Who, width: int) -> State:
            now = stored.some(who, slice(k, k + 1))
            return follow_stacked(broadcast, state, *gradients(self._layers, state.y, now), mine, k)

        return step

    def _adds_to_loss(self, broadcast: Broadcast) -> bool:
        """Does the algorithm add to the loss? Compiled gradients are those of the cross entropy alone."""
        algorithm = broadcast.algorithm
        return algorithm.has_own("penalty") or algorithm.teacher(broadcast.down) is not None

    def _shares(self, steps: NDArray[np.int64]) -> list[slice]:
        """A part of the clients for each thread, with about equally many steps in total."""
        made = np.cumsum(steps)
        ends = np.searchsorted(made, made[-1] * np.arange(1, self.workers) / self.workers) + 1
        return [slice(*pair) for pair in pairwise(np.unique([0, *ends, len(steps)]).tolist())]

    def _stored(self, picks: Picks) -> StoredBatches:
        examples, places = self.data.examples, torch.from_numpy(picks.places)
        with self.fetching():
            labels = examples.targets[places].long().numpy()
            at = places if examples.rows is None else examples.rows[places].long()
        return StoredBatches(self._inputs, at.numpy(), labels, picks.mask.sum(2))


def share_memory(one: Tensor | None, other: Tensor) -> bool:
    """Is a change to one a change to the other?"""
    if one is None:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
