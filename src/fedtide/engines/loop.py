"""One client after the other, or a few at once on threads: this engine defines the meaning."""

from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.rng import torch_seed
from fedtide.core.trees import rows, tree_map
from fedtide.core.types import NO_LUCK, Batch, Luck
from fedtide.engines.base import Chunk, InProcess, seeded
from fedtide.engines.collect import Collector
from fedtide.training.client import client_round
from fedtide.training.explain import of_client
from fedtide.training.messages import Broadcast, Report


class Loop(InProcess):
    """Plain autograd for each client; the fastest choice for convolutions on a CPU."""

    def cohort(self, broadcast: Broadcast, chunk: Chunk) -> Report:
        def one(u: int) -> Report:
            with of_client(int(chunk.ids[u])):
                return self.client(broadcast, chunk, u)

        reports, clients = Collector(broadcast, chunk), range(len(chunk.ids))
        # Dropout draws from torch's one global generator, so such a model runs its clients in turn.
        done = map(one, clients) if self.traits.is_random else self.across(one, clients)
        for u, report in enumerate(done):
            reports.put(slice(u, u + 1), tree_map(lambda leaf: leaf[None], report))
        return reports.all()

    def client(self, broadcast: Broadcast, chunk: Chunk, u: int) -> Report:
        """The round of the client at place u."""
        steps, picks = int(chunk.walk.steps[u]), rows(chunk.picks, u)
        batches = (
            self._batch(picks.places[k, m], m[m], rows(picks.luck, (k, m)))
            for k, m in enumerate(picks.mask[:steps])
        )
        everything, stride = None, 1
        if chunk.everything and chunk.stride is not None:
            held, stride = rows(chunk.everything, u), int(chunk.stride[u])
            everything = self._batch(held.places[held.mask], held.mask[held.mask])
        address = ("dropout", broadcast.purpose, broadcast.t, int(chunk.ids[u]))
        seed, epochs = torch_seed(self.data.seed, *address), self.data.batching.epochs
        with seeded(seed) if self.traits.is_random else nullcontext():
            # Copied, because kernels may add up in another order where a row is not aligned.
            row, walk = tree_map(torch.clone, rows(chunk.rows, u)), rows(chunk.walk, u)
            return client_round(
                self.task, broadcast, row, batches, walk, everything, stride, epochs
            )

    def _batch(
        self, index: NDArray[np.int64], mask: NDArray[np.bool_], luck: Luck = NO_LUCK
    ) -> Batch:
        batch = self.batch(index, mask, luck)
        return batch._replace(inputs=self.task.arranged(batch.inputs))
