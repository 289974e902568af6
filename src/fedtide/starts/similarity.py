"""DIMC: Chang et al., "Communication-Efficient Federated Learning under Dynamic Device Arrival and
Departure: Convergence Analysis and Algorithm Design", Algorithm 1.

When a session begins, its clients train for V rounds from a fixed pilot model; the difference G_s between
the result and the pilot model is the session's gradient. The session then begins with a mixture of the
models of earlier sessions z, which weigh the more, the nearer their G_z is to G_s. As in the authors' code,
gradient rounds run at half the learning rate, and `distance` is by default the mean over weight tensors of
the distance between the normalised gradients, which makes R a number without a unit; "two-norm" is Eq. 19.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.core.mix import mixed
from fedtide.core.types import Model, Nothing, Vector
from fedtide.starts.archive import All, Archive, Past, Retention
from fedtide.starts.base import Beginning, Begun, Start
from fedtide.starts.trigger import Era

TINY = 1e-12  # a gradient below this norm counts as 0


@dataclass(frozen=True, kw_only=True)
class Similarity(Start):
    """A mixture of earlier models, weighted by the similarity of gradients that clients compute (DIMC)."""

    computes: ClassVar[bool] = True
    P: int = 1
    V: int = 1  # the number of gradient rounds
    R: float = 10.0  # 0: the unweighted mean; large: only the nearest session
    clients: int = 0  # clients that take part in gradient rounds; 0: all
    distance: Literal["normalised", "two-norm"] = "normalised"
    pilot: Literal["average", "ema", "good"] = "average"
    beta: float = 0.9  # the decay of the "ema" pilot
    good: float = 0.8  # training accuracy from which a session counts in the "good" pilot
    keep: Retention = field(default_factory=All)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.P >= 1,
            "start.P",
            "at least 1",
            self.P,
            "The pilot model is made of the pilot sessions.",
        )
        require(self.V >= 1, "start.V", "at least 1", self.V)
        require(self.R >= 0, "start.R", "zero or positive", self.R)
        require(self.clients >= 0, "start.clients", "zero or positive", self.clients)
        require(0 <= self.beta < 1, "start.beta", "in [0, 1)", self.beta)
        require(0 <= self.good <= 1, "start.good", "in [0, 1]", self.good)

    def begin(self, known: Beginning) -> Begun:
        if isinstance(known.archive.pilot, Nothing):
            return Begun(self.opening(known), {})
        g = self.gradient(known, self.clients)  # lines 14-22
        if not known.archive.past:
            return Begun(self.opening(known), {}, g)
        gaps = torch.tensor([self.gap(g, p.gradient, known.layout) for p in known.archive.past])
        mu = torch.softmax(-self.R * gaps, 0)  # Eq. 19
        facts = {
            "start_weights": mu.tolist(),
            "start_from": [past.session for past in known.archive.past],
            "start_distances": gaps.tolist(),
            "stored_floats": known.archive.floats,
        }
        return Begun(known.archive.mixed(mu, known.initial), facts, g)  # Eq. 18

    def gradient(self, known: Beginning, clients: int) -> Vector:
        """G_s: the change of the pilot model in V rounds with `clients` clients (Eq. 17)."""
        pilot = known.archive.pilot
        assert isinstance(pilot, Model)
        return known.gradient_rounds(pilot, self.V, clients).x - pilot.x

    def gap(self, one: Vector, other: Vector, layout: Layout) -> float:
        """The distance between two computed gradients."""
        if self.distance == "two-norm":
            return float((one - other.to(one)).norm())
        return normalised_distance(one, other.to(one), layout)

    def drift(self, era: Era, known: Beginning, clients: int) -> float:
        if not era.gradient.numel():  # in the pilot, where every change leads to a start
            return math.inf
        return self.gap(self.gradient(known, clients), era.gradient, known.layout)

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        if past.session >= self.P:
            kept = self.keep.added(
                archive.past, past, lambda a, b: self.gap(a.gradient, b.gradient, layout)
            )
            return archive._replace(past=kept)
        pilots = (*archive.past, past)
        if len(pilots) < self.P:
            return archive._replace(past=pilots)
        return Archive(mixed([p.model for p in pilots], self.pilot_weights(pilots)))  # line 12

    def pilot_weights(self, pilots: tuple[Past, ...]) -> Tensor:
        """The weight of each pilot session in the pilot model."""
        weights = torch.ones(len(pilots))
        if self.pilot == "ema":  # Eq. 30
            ages = torch.arange(len(pilots) - 1.0, -1, -1)
            weights = (1 - self.beta) * torch.full_like(ages, self.beta).pow(ages)
            weights[0] /= 1 - self.beta  # the first term of an exponential moving average
        if self.pilot == "good":  # or the best one, if none is good
            accuracy = torch.tensor([p.accuracy for p in pilots])
            weights = (accuracy >= min(self.good, float(accuracy.max()))).float()
        total: Tensor = weights.sum()
        return weights / total


def normalised_distance(one: Vector, other: Vector, layout: Layout) -> float:
    """The mean, over all parameters but biases, of || a / ||a|| - b / ||b|| ||; between 0 and 2."""
    a, b = layout.unpack(one), layout.unpack(other)
    names = [name for name in layout.names if "bias" not in name] or layout.names
    gaps = [(_direction(a[name]) - _direction(b[name])).norm() for name in names]
    return float(torch.stack(gaps).mean())


def _direction(g: Tensor) -> Tensor:
    size: Tensor = g.norm()
    return g / size.clamp(min=TINY)
