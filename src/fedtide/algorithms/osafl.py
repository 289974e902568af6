"""OSAFL: Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the Resource Constraints
in Wireless Networks", Algorithm 2.

A client sends its mean gradient, (w - y) / (kappa eta) for plain SGD; with momentum, FedNova's ||a||_1 takes
the place of kappa. The server keeps the last one of every client and weights each by how well it agrees with
the mean of all (Eqs. 19-21, 35). The last gradients of clients that have left do not count.

Deviations: a round without any upload leaves the model as it is; as printed, the last gradients would move it
once more. Clients that never took part contribute nothing until they do. The printed rule lets them
contribute w / eta (lines 1 and 17). Each of those shrinks the model by server_lr / U of itself: with the
published server_lr = 35 and a third of the clients missing, the model is eleven times as large after one
round, with its sign reversed. That rule is kept in studies/papers/osafl/variants.py. alpha_u is 1 / U.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedtide.algorithms.base import Algorithm, Change, Context
from fedtide.algorithms.fedavg import Down
from fedtide.algorithms.parts.table import Table, empty
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Upload(NamedTuple):
    """What a client sends."""

    d: Vector  # d_u: its mean gradient (Eq. 16)


class Server(NamedTuple):
    """State of the server."""

    x: Vector  # w
    last: Table  # d[u], of every client seen
    score: (
        Tensor  # [n]: lambda_u of the last round, in the order of `last.ids`; 0 for those who left
    )


@dataclass(frozen=True, kw_only=True)
class Osafl(Algorithm[Server, Down, Nothing, Upload]):
    """The last mean gradients of all clients, weighted by their agreement."""

    server_lr: float = 5.0  # eta tilde; FedAvg's pace is the number of local steps
    chi: float = 1.0  # not published; 1: a gradient opposite to the mean counts nothing

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)
        require(self.chi >= 1, "algorithm.chi", "at least 1", self.chi)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Upload(x)), x.new_empty(0))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Upload, Nothing]:
        return Upload((down.x - y) / (walk.weight * walk.lr)), mine

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        d = last.rows.d
        agreement = cosine_similarity(d, d.sum(0)[None])  # Eq. 20; the length of the mean cancels
        score = (self.chi + agreement) / (self.chi + 1)  # Eqs. 21 and 35
        step = self.server_lr * cohort.walk.lr[0] / cohort.population
        every = score.new_zeros(len(last.ids)).masked_scatter(last.here, score)
        return Server(server.x - step * (score @ d), last, every)  # Eq. 17

    def changed(self, server: Server, change: Change) -> Server:
        return server._replace(last=server.last.among(change.present))

    def facts(self, server: Server, cohort: Cohort) -> Mapping[str, Any]:
        place = torch.searchsorted(server.last.ids, cohort.ids)
        return {"scores": server.score[place].tolist()}
