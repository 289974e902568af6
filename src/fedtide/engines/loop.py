"""One client after the other, or a few at once on threads: this engine defines the meaning."""

from contextlib import nullcontext

from fedtide.core.rng import torch_seed
from fedtide.core.trees import rows, stack
from fedtide.engines.base import Engine, Errand, seeded
from fedtide.engines.client import Lesson, Report, client_round


class Loop(Engine):
    """Plain autograd for each client; the fastest choice for convolutions on a CPU."""

    def cohort(self, lesson: Lesson, errand: Errand) -> Report:
        def one(u: int) -> Report:
            steps = int(errand.walk.steps[u])
            batches = (
                self.batch(errand.picks.places[u, k], errand.picks.mask[u, k]) for k in range(steps)
            )
            address = ("dropout", *errand.address, int(errand.ids[u]))
            seed = torch_seed(self.data.seed, *address)
            with seeded(seed) if self.traits.is_random else nullcontext():
                return client_round(lesson, rows(errand.rows, u), batches, rows(errand.walk, u))

        clients = range(len(errand.ids))
        # Dropout draws from torch's one global generator, so such a model runs its clients in turn.
        reports = [one(u) for u in clients] if self.traits.is_random else self.across(one, clients)
        report: Report = stack(reports)
        return report
