"""FedAgg: Yuan and Wang, "FedAgg: Adaptive Federated Learning with Aggregated Gradients", Algorithms 1 and 2.

Every client and local epoch has its own learning rate, the solution of a small control problem around two
mean-field terms: phi1_l, the clients' mean gradient at epoch l, and phi2_l, their mean model. A client sends
its full local gradient at the start of every epoch and its displacement from the global model at its end;
the server averages both. Which round's terms serve which round is the `reading`, as the terms of the round
itself would stop everybody. phi2_k = w + d_k: displacements are anchored at today's global model.

Algorithm 2 makes many steps in an epoch, Eq. 14 one. `epoch` says on which of them the control counts.
"batches" is w_{l+1} = w_l - eta_l phi1_l with phi1_l = mean over clients of (w_{i,l} - w_{i,l+1}) /
eta_{i,l}: what the n_l mini-batches of the epoch moved a client per unit of rate, under SGD the sum of
their n_l gradients, and n_l times the gradient where that hardly changes. Summed over the steps of an
epoch, both costs of the quadratic, alpha eta^2 and (1 - alpha) ||w - phi2||^2, grow by the same n_l, so
alpha stays the paper's. "step" is the paper's letter, phi1_l = the mean gradient at the start of the epoch:
displacements then exceed what the control predicts by a factor of about n_l, and it raises the rates until
they meet a bound.

Rates stay in [floor, cap] and within a factor of `reach` of the study's own rate. Until terms are known
(the first round, and the first after a start that installs another model, unless `keep_terms`) the study's
own rate is used. A client cut short by the network is taken to stand still for the rest of its epochs. The
rate of an epoch serves all its mini-batches (Algorithm 2, line 6).
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, Survey
from fedtide.algorithms.parts.meanfield import Law, Terms, feedback
from fedtide.algorithms.parts.readings import EarlierTerms, Reading
from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    terms: Terms | Nothing
    age: Tensor  # rounds, as the reading counts them


class Request(NamedTuple):
    """A word without content: report your terms this round."""


class Down(NamedTuple):
    """What a client receives."""

    x: Vector
    law: Law | Nothing  # how its rates follow from where it stands
    ask: Request | Nothing


class Trail(NamedTuple):
    """What a client notes in a round; whatever it has not reached yet repeats the present."""

    phi1: Tensor | Nothing  # [L, m]: its gradients, if they are asked for
    d: Tensor | Nothing  # [L, m]: its displacements, if they are asked for
    eta: Tensor  # [L]: the control's rates, before they are bounded


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # y - x
    eta: Tensor  # [L]: the rates it used
    phi1: Tensor | Nothing  # [L, m]
    d: Tensor | Nothing  # [L, m]


@dataclass(frozen=True, kw_only=True)
class FedAgg(Algorithm[Server, Down, Nothing | Trail, Upload]):
    """Clients choose the rate of every epoch so as to stay with the others."""

    alpha: float = 0.1  # weight of small rates against small deviations
    floor: float = 0.001
    cap: float = 0.9  # Proposition 3: below 1
    reach: float = 2.0  # by which factor a rate may differ from the study's; 0: by any
    epoch: Literal["batches", "step"] = "batches"  # what the control takes an epoch for
    reading: Reading = field(default_factory=EarlierTerms)
    terms: Literal["full", "layers"] = "full"  # "layers": one number per layer, its scaled sum
    keep_terms: bool = False  # when a start installs another model

    surveys = "epochs"

    def __post_init__(self) -> None:
        require(0 < self.alpha < 1, "algorithm.alpha", "in (0, 1)", self.alpha)
        require(0 < self.floor < 1, "algorithm.floor", "in (0, 1)", self.floor)
        above = self.floor < self.cap < 1
        require(above, "algorithm.cap", f"above floor = {self.floor:g} and below 1", self.cap)
        fits = self.reach >= 1 or self.reach == 0
        require(fits, "algorithm.reach", "at least 1, or 0 for no such bound", self.reach)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, Nothing(), torch.tensor(0))

    def restart(self, server: Server, x: Vector, context: Context) -> Server:
        return server._replace(x=x) if self.keep_terms else self.init(x, context)

    def limits(self, lr: float) -> tuple[float, float]:
        """The smallest and the largest rate where the study asks for `lr`."""
        own, reach = min(max(lr, self.floor), self.cap), self.reach or math.inf
        return max(self.floor, own / reach), min(self.cap, own * reach)

    def broadcast(self, server: Server) -> Down:
        law = feedback(server.terms, self.alpha) if isinstance(server.terms, Terms) else Nothing()
        ask = Request() if self.reading.asks(int(server.age)) else Nothing()
        return Down(server.x, law, ask)

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Nothing | Trail
    ) -> Trail:
        u = self._kept(y - down.x, survey.layout)
        ahead = torch.arange(survey.epochs, device=y.device) - epoch  # 0: the epoch that begins
        phi1, d, eta = mine if isinstance(mine, Trail) else self._blank(u, survey.epochs, down)
        if isinstance(d, Tensor):
            d = torch.where(ahead[:, None] >= -1, u, d)
        if survey.over:
            return Trail(phi1, d, eta)
        if isinstance(phi1, Tensor):
            gradient = self._kept(survey.gradient(y), survey.layout)
            phi1 = torch.where(ahead[:, None] >= 0, gradient, phi1)
        if isinstance(down.law, Law):
            best = down.law.K @ u + down.law.v  # Eq. 15, every epoch
            eta = torch.where(ahead >= 0, (best * (ahead == 0)).sum(), eta)
        return Trail(phi1, d, eta)

    def rate(self, lr: float, down: Down, mine: Nothing | Trail) -> Tensor | float:
        if isinstance(down.law, Nothing):
            return min(max(lr, self.floor), self.cap)
        return cast(Trail, mine).eta[-1].clamp(*self.limits(lr))

    def report(
        self, y: Vector, walk: Walk, down: Down, mine: Nothing | Trail
    ) -> tuple[Upload, Nothing]:
        phi1, d, eta = cast(Trail, mine)
        own = walk.lr.clamp(self.floor, self.cap).expand(eta.shape)
        reach = self.reach or math.inf
        low, high = own / reach, own * reach
        used = torch.minimum(torch.maximum(eta, low), high).clamp(self.floor, self.cap)
        return Upload(
            y - down.x, own if isinstance(down.law, Nothing) else used, phi1, d
        ), Nothing()

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        x, age = server.x, int(server.age)
        if self.reading.moves(age):
            x = x + cohort.share @ up.delta  # Algorithm 2, line 9
        new: Terms | Nothing = Nothing()
        if isinstance(up.d, Tensor):  # Definition 1: every client counts the same
            phi1 = up.phi1 if isinstance(up.phi1, Tensor) else per_rate(up.d, up.eta)
            new = Terms(phi1.mean(0), up.d.mean(0))
        terms, age = self.reading.learned(server.terms, new, age)
        return Server(x, terms, torch.tensor(age))

    def _kept(self, vector: Vector, layout: Layout) -> Tensor:
        """A vector as the terms keep it; inner products of layers are those of the layers' means."""
        if self.terms == "full":
            return vector
        sizes = [shape.numel() for shape in layout.shapes]
        layers = zip(torch.split(vector, sizes), sizes, strict=True)
        return torch.stack([part.sum() / math.sqrt(size) for part, size in layers])

    def _blank(self, u: Tensor, epochs: int, down: Down) -> Trail:
        """A trail on which nothing is noted yet."""
        rows = u.expand(epochs, -1) if isinstance(down.ask, Request) else Nothing()
        return Trail(rows if self.epoch == "step" else Nothing(), rows, u.new_zeros(epochs))


def per_rate(d: Tensor, eta: Tensor) -> Tensor:
    """How far the mini-batches of every epoch moved a client per unit of rate: [U, L, m].

    From displacements at the ends of the epochs, [U, L, m], and the rates, [U, L].
    """
    before = torch.cat([torch.zeros_like(d[:, :1]), d[:, :-1]], 1)
    return (before - d) / eta[..., None]
