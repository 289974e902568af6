"""One client after the other, or a few at once on threads: this engine defines the meaning."""

from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.rng import torch_seed
from fedtide.core.trees import rows, tree_map
from fedtide.core.types import Batch
from fedtide.engines.base import Errand, InProcess, seeded
from fedtide.engines.collect import Reports
from fedtide.training.client import Lesson, Report, Whole, client_round


class Loop(InProcess):
    """Plain autograd for each client; the fastest choice for convolutions on a CPU."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        def one(u: int) -> Report:
            steps = int(errand.walk.steps[u])
            places, mask = errand.picks.places[u], errand.picks.mask[u]
            batches = (self._batch(places[k, m], m[m]) for k, m in enumerate(mask[:steps]))
            whole = None
            if errand.ground:
                ground, held, stride = (field[u] for field in errand.ground)
                whole = Whole(self._batch(ground[held], held[held]), int(stride))
            address = ("dropout", *errand.address, int(errand.ids[u]))
            seed = torch_seed(self.data.seed, *address)
            with seeded(seed) if self.traits.is_random else nullcontext():
                # Copied, because kernels may add up in another order where a row is not aligned.
                row, walk = tree_map(torch.clone, rows(errand.rows, u)), rows(errand.walk, u)
                return client_round(lesson, row, batches, walk, whole)

        reports, clients = Reports(lesson, errand), range(len(errand.ids))
        # Dropout draws from torch's one global generator, so such a model runs its clients in turn.
        done = map(one, clients) if self.traits.is_random else self.across(one, clients)
        for u, report in enumerate(done):
            reports.put(slice(u, u + 1), tree_map(lambda leaf: leaf[None], report))
        return reports.all()

    def _batch(self, index: NDArray[np.int64], mask: NDArray[np.bool_]) -> Batch:
        batch = self.batch(index, mask)
        return batch._replace(inputs=self.task.arranged(batch.inputs))
