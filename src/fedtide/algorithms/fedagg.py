"""FedAgg: Yuan and Wang, "FedAgg: Adaptive Federated Learning with Aggregated Gradients", Algorithms 1 and 2.

Every client and local epoch has its own learning rate, the solution of a small control problem around two
mean-field terms: phi1_l, the clients' mean gradient at epoch l, and phi2_l, their mean model. A client sends
its full local gradient at the start of every epoch and its displacement from the global model at its end;
the server averages both. Which round's terms serve which round is the `reading`, as the terms of the round
itself would stop everybody. phi2_k = w + d_k: displacements are anchored at today's global model.

Until terms are known (the first round of a session; those of an earlier one are dropped) the study's own
rate is used. A client cut short by the network is taken to stand still for the rest of its epochs. The
rate of an epoch, clipped to [floor, cap], serves all its mini-batches (Algorithm 2, line 6).
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, Survey
from fedtide.algorithms.meanfield import Law, Terms, feedback
from fedtide.algorithms.readings import History, Reading
from fedtide.core.errors import require
from fedtide.core.task import Layout
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    terms: Terms | Nothing
    age: Tensor  # rounds, as the reading counts them


class Asked(NamedTuple):
    """A word without content: report your terms this round."""


class Down(NamedTuple):
    """What a client receives."""

    x: Vector
    law: Law | Nothing  # how its rates follow from where it stands
    ask: Asked | Nothing


class Trail(NamedTuple):
    """What a client notes in a round; whatever it has not reached yet repeats the present."""

    terms: Terms | Nothing
    eta: Tensor  # [L]


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # y - x
    eta: Tensor  # [L]: the rates it used
    terms: Terms | Nothing


@dataclass(frozen=True, kw_only=True)
class FedAgg(Algorithm[Server, Down, Nothing | Trail, Upload]):
    """Clients choose the rate of every epoch so as to stay with the others."""

    alpha: float = 0.1  # weight of small rates against small deviations
    floor: float = 0.001
    cap: float = 0.9  # Proposition 3: below 1; a CNN needs less, say 0.1
    reading: Reading = field(default_factory=History)
    terms: Literal["full", "layers"] = "full"  # "layers": one number per layer, its scaled sum

    surveys = "epochs"

    def __post_init__(self) -> None:
        require(0 < self.alpha < 1, "algorithm.alpha", "in (0, 1)", self.alpha)
        require(0 < self.floor < 1, "algorithm.floor", "in (0, 1)", self.floor)
        above = self.floor < self.cap < 1
        require(above, "algorithm.cap", f"above floor = {self.floor:g} and below 1", self.cap)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, Nothing(), torch.tensor(0))

    def broadcast(self, server: Server) -> Down:
        law = feedback(server.terms, self.alpha) if isinstance(server.terms, Terms) else Nothing()
        ask = Asked() if self.reading.asks(int(server.age)) else Nothing()
        return Down(server.x, law, ask)

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Nothing | Trail
    ) -> Trail:
        u = self._kept(y - down.x, survey.layout)
        ahead = torch.arange(survey.epochs, device=y.device) - epoch  # 0: the epoch that begins
        terms, eta = mine if isinstance(mine, Trail) else _blank(u, survey.epochs, down)
        if isinstance(terms, Terms):
            terms = terms._replace(d=torch.where(ahead[:, None] >= -1, u, terms.d))
        if survey.over:
            return Trail(terms, eta)
        if isinstance(terms, Terms):
            gradient = self._kept(survey.gradient(y), survey.layout)
            terms = terms._replace(phi1=torch.where(ahead[:, None] >= 0, gradient, terms.phi1))
        if isinstance(down.law, Law):
            best = (down.law.K @ u + down.law.v).clamp(self.floor, self.cap)  # Eq. 15, every epoch
            eta = torch.where(ahead >= 0, (best * (ahead == 0)).sum(), eta)
        return Trail(terms, eta)

    def rate(self, lr: float, down: Down, mine: Nothing | Trail) -> Tensor | float:
        if isinstance(down.law, Nothing):
            return min(max(lr, self.floor), self.cap)
        return cast(Trail, mine).eta[-1]

    def report(
        self, y: Vector, walk: Walk, down: Down, mine: Nothing | Trail
    ) -> tuple[Upload, Nothing]:
        terms, eta = cast(Trail, mine)
        if isinstance(down.law, Nothing):
            eta = walk.lr.clamp(self.floor, self.cap).expand(eta.shape)
        return Upload(y - down.x, eta, terms), Nothing()

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        x, age = server.x, int(server.age)
        if self.reading.moves(age):
            x = x + cohort.share @ up.delta  # Algorithm 2, line 9
        new = up.terms
        if isinstance(new, Terms):  # Definition 1: every client counts the same
            new = Terms(*(part.mean(0) for part in new))
        terms, age = self.reading.learned(server.terms, new, age)
        return Server(x, terms, torch.tensor(age))

    def _kept(self, vector: Vector, layout: Layout) -> Tensor:
        """A vector as the terms keep it; inner products of layers are those of the layers' means."""
        if self.terms == "full":
            return vector
        sizes = [shape.numel() for shape in layout.shapes]
        layers = zip(torch.split(vector, sizes), sizes, strict=True)
        return torch.stack([part.sum() / math.sqrt(size) for part, size in layers])


def _blank(u: Tensor, epochs: int, down: Down) -> Trail:
    """A trail on which nothing is noted yet."""
    rows = u.expand(epochs, -1)
    asked = isinstance(down.ask, Asked)
    return Trail(Terms(rows, rows) if asked else Nothing(), u.new_zeros(epochs))
