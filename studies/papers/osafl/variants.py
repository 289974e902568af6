"""OSAFL with the buffer as printed: a client that never took part contributes w / eta (Algorithm 2, line 17).

Such a row moves the model by -server_lr alpha_u score w, a multiple of itself, whatever the data say. With
the published server_lr of 20 to 35 and shares of stragglers the model explodes within a few rounds.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import cosine_similarity

from fedtide.algorithms.osafl import Osafl, Server, Upload
from fedtide.core.types import Cohort


@dataclass(frozen=True, kw_only=True)
class OsaflAsPrinted(Osafl):
    """Clients never seen contribute w / eta."""

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        eta, everybody = cohort.walk.lr[0], cohort.population
        seen = last.rows.d
        d = torch.cat([seen, (server.x / eta).expand(everybody - len(seen), -1)])
        score = (self.chi + cosine_similarity(d, d.mean(0)[None])) / (self.chi + 1)
        every = score.new_zeros(len(last.ids)).masked_scatter(last.here, score[: len(seen)])
        return Server(server.x - self.server_lr * eta / everybody * (score @ d), last, every)
