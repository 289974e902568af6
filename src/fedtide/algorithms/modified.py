"""The five baselines of OSAFL: Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the
Resource Constraints in Wireless Networks", Algorithms 6-10.

Methods for static data, modified for clients that cannot always take part: the server keeps the last
contribution of every client and uses all of them in every round. Where our reading is not the printed rule:

- Who was never seen contributes nothing to M-AFA-CD, as in OSAFL; the printed w / eta shrinks the model or
  turns it round.
- M-FedNova's weights p_u kappa_u are zero for whoever makes no step in a round, so no last contribution ever
  counts. p_u is relative to all clients' examples; the absent count like the cohort's mean.
- M-FedDisco's discrepancy is the KL divergence from even labels, divided by its sum over the clients as in
  the code of FedDisco: undivided, a = 0.2 leaves no positive weight. A client never seen counts like the mean
  of those seen, with the current model.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, Survey
from fedtide.algorithms.fedavg import Down
from fedtide.algorithms.table import Table, empty
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Nothing, Vector, Walk

Sent = TypeVar("Sent")


class Server(NamedTuple):
    """State of the server."""

    x: Vector  # w
    last: Table  # the last contribution of everybody seen


class Trained(NamedTuple):
    """A client sends its model."""

    w: Vector


class Moved(NamedTuple):
    """A client sends how far it moved, as a mean gradient."""

    d: Vector  # (w - y) / (kappa eta)


class Labels(NamedTuple):
    """What a client of M-FedDisco says about its data."""

    size: Tensor  # D_u
    kl: Tensor  # from even labels


class Described(NamedTuple):
    """A client sends its model and a word about its data."""

    w: Vector
    labels: Labels


@dataclass(frozen=True, kw_only=True)
class Modified(Algorithm[Server, Down, Nothing, Sent], Generic[Sent]):
    """What they share."""

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)


@dataclass(frozen=True, kw_only=True)
class ModifiedFedAvg(Modified[Trained]):
    """The mean of all clients' last models; who was never seen stands where the server stands."""

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Trained(x)))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Trained, Nothing]:
        return Trained(y), mine

    def aggregate(self, server: Server, up: Trained, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        everybody = last.among(cohort.population)
        unseen = everybody - len(last.ids)
        return Server((last.rows.w.sum(0) + unseen * server.x) / everybody, last)  # line 18


@dataclass(frozen=True, kw_only=True)
class ModifiedFedProx(ModifiedFedAvg):
    """The same, with clients that are pulled back towards the global model."""

    mu: float = 0.9

    stacks = True

    def __post_init__(self) -> None:
        require(self.mu >= 0, "algorithm.mu", "zero or positive", self.mu)

    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Nothing) -> Vector:
        return grad + self.mu * (y - down.x)  # line 10


@dataclass(frozen=True, kw_only=True)
class ModifiedFedNova(Modified[Moved]):
    """Normalised gradients, weighted by the steps made in this round."""

    slowdown: float = 1.0  # tau tilde

    def __post_init__(self) -> None:
        require(self.slowdown > 0, "algorithm.slowdown", "positive", self.slowdown)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Moved(x)))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Moved, Nothing]:
        return Moved((down.x - y) / (walk.steps * walk.lr)), mine

    def aggregate(self, server: Server, up: Moved, cohort: Cohort) -> Server:
        p = cohort.share * len(cohort.ids) / cohort.population
        weight = p * cohort.walk.steps  # line 18: the sum of these cancels
        step = self.slowdown * cohort.walk.lr[0]
        return Server(server.x - step * (weight @ up.d), server.last)


@dataclass(frozen=True, kw_only=True)
class ModifiedAfaCD(Modified[Moved]):
    """The mean of all clients' last normalised gradients; with its memory it is AFA-CS."""

    server_lr: float = 0.2  # eta; the clients' rate does not multiply it

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Moved(x)))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Moved, Nothing]:
        return Moved((down.x - y) / (walk.steps * walk.lr)), mine

    def aggregate(self, server: Server, up: Moved, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        mean = last.rows.d.sum(0) / last.among(cohort.population)
        return Server(server.x - self.server_lr * mean, last)  # line 18


@dataclass(frozen=True, kw_only=True)
class ModifiedFedDisco(Algorithm[Server, Down, Nothing | Labels, Described]):
    """The last models of all clients, of which those with uneven labels count less."""

    a: float = 0.2
    b: float = 0.1

    surveys = "end"

    def __post_init__(self) -> None:
        require(self.a >= 0, "algorithm.a", "zero or positive", self.a)
        require(self.b >= 0, "algorithm.b", "zero or positive", self.b)

    def init(self, x: Vector, context: Context) -> Server:
        one = x.new_zeros(())
        return Server(x, empty(Described(x, Labels(one, one))))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Nothing | Labels
    ) -> Labels:
        labels = torch.arange(survey.outputs(y).logits.shape[-1], device=y.device)
        count = ((survey.targets == labels[:, None]) * survey.mask).to(y).sum(1)
        share = count / count.sum().clamp(min=1)
        return Labels(count.sum(), torch.xlogy(share, share * len(labels)).sum())

    def report(
        self, y: Vector, walk: Walk, down: Down, mine: Nothing | Labels
    ) -> tuple[Described, Nothing]:
        return Described(y, cast(Labels, mine)), Nothing()

    def aggregate(self, server: Server, up: Described, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        w, (size, kl) = last.rows
        everybody = last.among(cohort.population)
        unseen = everybody - len(w)
        p = size / (size.mean() * everybody)
        d = kl / (kl.mean() * everybody).clamp(min=1e-12)
        weight = (p - self.a * d + self.b).relu()  # Eq. 83
        weight = weight if weight.any() else torch.ones_like(weight)
        whole = weight.sum() + unseen * weight.mean()
        x = (weight @ w + unseen * weight.mean() * server.x) / whole
        return Server(x, last)
