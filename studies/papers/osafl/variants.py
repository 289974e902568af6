"""OSAFL with the buffer as printed: a client that never took part contributes w / eta (Algorithm 2, line 17).

Such a row moves the model by -server_lr alpha_u score w, a multiple of itself that does not depend on the
data. With the published server_lr of 20 to 35 and shares of stragglers the model diverges in a few rounds.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cosine_similarity

from fedtide import Osafl
from fedtide.extend import Cohort


@dataclass(frozen=True, kw_only=True)
class OsaflAsPrinted(Osafl):
    """Clients that never took part contribute w / eta."""

    def aggregate(self, server: Any, up: Any, cohort: Cohort) -> Any:
        last = server.last.with_rows(cohort.ids, up)
        eta, clients = cohort.walk.lr[0], cohort.population
        seen = last.rows.d
        d = torch.cat([seen, (server.x / eta).expand(clients - len(seen), -1)])
        score = (self.chi + cosine_similarity(d, d.mean(0)[None])) / (self.chi + 1)
        every = score.new_zeros(len(last.ids)).masked_scatter(last.here, score[: len(seen)])
        x = server.x - self.server_lr * eta / clients * (score @ d)
        return server._replace(x=x, last=last, score=every)
