"""The five baselines of OSAFL: Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the
Resource Constraints in Wireless Networks", Algorithms 6-10.

Methods for static data, modified for clients that cannot always take part: the server keeps the last
contribution of every client and uses all of them in every round. Where our reading is not the printed rule:

- Who was never seen contributes nothing to M-AFA-CD, as in OSAFL; the printed w / eta shrinks the model or
  turns it round.
- M-FedNova's kappa_u and D_u are the last ones that the client has sent, like its gradient (line 18: "use
  clients' latest contributions"). With `remembers = false` they are those of the round, so that a client
  that makes no step has the weight zero and no earlier contribution ever counts. p_u is relative to all
  clients' examples; a client never seen counts like the mean of those seen.
- A round without any upload leaves the model as it is; as printed, the last contributions would count again.
- With momentum, FedNova's ||a||_1 takes the place of kappa_u, as it counts how often gradients enter w - y.
- M-FedDisco's discrepancy is the KL divergence from even labels, divided by its sum over the clients as in
  the code of FedDisco: undivided, a = 0.2 leaves no positive weight. A client never seen counts like the mean
  of those seen, with the current model.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Change, Context, Survey, stacked
from fedtide.algorithms.fedavg import Down
from fedtide.algorithms.parts.table import Table, empty
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Nothing, Vector, Walk

Mine = TypeVar("Mine")
Sent = TypeVar("Sent")


class Server(NamedTuple):
    """State of the server."""

    x: Vector  # w
    last: Table  # the last contribution of every client seen


class Trained(NamedTuple):
    """What a client of M-FedAvg or M-FedProx sends: its trained model."""

    w: Vector


class Moved(NamedTuple):
    """A client sends how far it moved, as a mean gradient."""

    d: Vector  # (w - y) / (kappa eta)


class Counted(NamedTuple):
    """What a client of M-FedNova sends: its mean gradient, and how much it stands for."""

    d: Vector  # (w - y) / (kappa eta)
    kappa: Tensor
    size: Tensor  # D_u


class Size(NamedTuple):
    """How many examples a client of M-FedNova holds."""

    size: Tensor


class Labels(NamedTuple):
    """A client's number of examples, and how far its labels are from evenly distributed, for M-FedDisco."""

    size: Tensor  # D_u
    kl: Tensor  # from an even distribution of labels


class Described(NamedTuple):
    """A client sends its model and a word about its data."""

    w: Vector
    labels: Labels


@dataclass(frozen=True, kw_only=True)
class Modified(Algorithm[Server, Down, Mine, Sent], Generic[Mine, Sent]):
    """What they share."""

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def changed(self, server: Server, change: Change) -> Server:
        return Server(server.x, server.last.among(change.present))


@dataclass(frozen=True, kw_only=True)
class ModifiedFedAvg(Modified[Nothing, Trained]):
    """The mean of all clients' last models; who was never seen stands where the server stands."""

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Trained(x)))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Trained, Nothing]:
        return Trained(y), mine

    def aggregate(self, server: Server, up: Trained, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        w = last.rows.w
        unseen = cohort.population - len(w)
        return Server((w.sum(0) + unseen * server.x) / cohort.population, last)  # line 18


@dataclass(frozen=True, kw_only=True)
class ModifiedFedProx(ModifiedFedAvg):
    """The same, with clients that are pulled back towards the global model."""

    mu: float = 0.9

    def __post_init__(self) -> None:
        require(self.mu >= 0, "algorithm.mu", "zero or positive", self.mu)

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Nothing) -> Vector:
        return grad + self.mu * (y - down.x)  # line 10


@dataclass(frozen=True, kw_only=True)
class ModifiedFedNova(Modified[Nothing | Size, Counted]):
    """The last normalised gradients of all clients, weighted by their steps and examples."""

    slowdown: float = 1.0  # tau tilde
    remembers: bool = True  # do last contributions count? see the first lines of this file

    surveys = "end"

    def __post_init__(self) -> None:
        require(self.slowdown > 0, "algorithm.slowdown", "positive", self.slowdown)

    def init(self, x: Vector, context: Context) -> Server:
        one = x.new_zeros(())
        return Server(x, empty(Counted(x, one, one)))

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Nothing | Size
    ) -> Size:
        return Size(survey.mask.to(y).sum())

    def report(
        self, y: Vector, walk: Walk, down: Down, mine: Nothing | Size
    ) -> tuple[Counted, Nothing]:
        d = (down.x - y) / (walk.weight * walk.lr)
        return Counted(d, walk.weight, cast(Size, mine).size), Nothing()

    def aggregate(self, server: Server, up: Counted, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        d, kappa, size = last.rows if self.remembers else up
        p = size / (size.mean() * cohort.population)
        step = self.slowdown * cohort.walk.lr[0]
        return Server(server.x - step * ((p * kappa) @ d), last)  # line 18: the inner sum cancels


@dataclass(frozen=True, kw_only=True)
class ModifiedAfaCD(Modified[Nothing, Moved]):
    """The mean of all clients' last normalised gradients; with its memory it is AFA-CS."""

    server_lr: float = 0.2  # eta; the clients' rate does not multiply it

    def __post_init__(self) -> None:
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, empty(Moved(x)))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Nothing) -> tuple[Moved, Nothing]:
        return Moved((down.x - y) / (walk.weight * walk.lr)), mine

    def aggregate(self, server: Server, up: Moved, cohort: Cohort) -> Server:
        last = server.last.with_rows(cohort.ids, up)
        mean = last.rows.d.sum(0) / cohort.population
        return Server(server.x - self.server_lr * mean, last)  # line 18


@dataclass(frozen=True, kw_only=True)
class ModifiedFedDisco(Modified[Nothing | Labels, Described]):
    """The last models of all clients, of which those with uneven labels count less."""

    a: float = 0.2
    b: float = 0.1

    surveys = "end"
    needs = "labels"

    def __post_init__(self) -> None:
        require(self.a >= 0, "algorithm.a", "zero or positive", self.a)
        require(self.b >= 0, "algorithm.b", "zero or positive", self.b)

    def init(self, x: Vector, context: Context) -> Server:
        one = x.new_zeros(())
        return Server(x, empty(Described(x, Labels(one, one))))

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
        everybody = cohort.population
        unseen = everybody - len(w)
        p = size / (size.mean() * everybody)
        d = kl / (kl.mean() * everybody).clamp(min=1e-12)
        weight = (p - self.a * d + self.b).relu()  # Eq. 83
        weight = weight if weight.any() else torch.ones_like(weight)
        whole = weight.sum() + unseen * weight.mean()
        x = (weight @ w + unseen * weight.mean() * server.x) / whole
        return Server(x, last)
