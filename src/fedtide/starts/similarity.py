"""DIMC: Chang et al., "Communication-Efficient Federated Learning under Dynamic Device Arrival and
Departure: Convergence Analysis and Algorithm Design", Algorithm 1.

When a session begins, its clients train for V rounds from a fixed pilot model; the difference G_s between
the result and the pilot model is the session's gradient. The session then begins with a mixture of the
models of earlier sessions z, which weigh the more, the nearer their G_z is to G_s. As in the authors' code,
gradient rounds run at half the learning rate, and `distance` is by default the mean over weight tensors of
the distance between the normalised gradients, which makes R a number without a unit; "two-norm" is Eq. 19.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedtide.core.errors import ConfigError, require
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
    archives: ClassVar[bool] = True
    V: int = 1  # the number of gradient rounds
    R: float = 10.0  # 0: the unweighted mean; inf: only the nearest session
    clients: int = 0  # clients that take part in gradient rounds; 0: all
    distance: Literal["normalised", "two-norm"] = "normalised"
    pilot: str = (
        "average"  # "average", "ema" or "good" of the pilot sessions, or a safetensors file
    )
    beta: float = 0.9  # the decay of the "ema" pilot
    good: float = 0.8  # training accuracy from which a session counts in the "good" pilot
    memories: Literal["aside", "used"] = "aside"  # of clients, in gradient rounds; "used": the code
    keep: Retention = field(default_factory=All)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.pilot in ("average", "ema", "good") or self.has_pilot_file
        must = "'average', 'ema', 'good' or the name of a safetensors file"
        require(known, "start.pilot", must, self.pilot)
        do = "The pilot model is made of the pilot sessions."
        require(self.P >= 1 or self.has_pilot_file, "start.P", "at least 1", self.P, do)
        do = "The pilot model needs no pilot sessions. Write P = 0."
        must = "0 with a pilot model from a file"
        require(self.P == 0 or not self.has_pilot_file, "start.P", must, self.P, do)
        require(self.V >= 1, "start.V", "at least 1", self.V)
        require(self.R >= 0, "start.R", "zero or positive", self.R)
        require(self.clients >= 0, "start.clients", "zero or positive", self.clients)
        require(0 <= self.beta < 1, "start.beta", "in [0, 1)", self.beta)
        require(0 <= self.good <= 1, "start.good", "in [0, 1]", self.good)

    @property
    def needs_accuracy(self) -> bool:
        return self.pilot == "good"

    @property
    def has_pilot_file(self) -> bool:
        """Is the pilot model read from a file?"""
        return self.pilot.endswith(".safetensors")

    def begin(self, known: Beginning) -> Begun:
        if isinstance(known.archive.pilot, Nothing) and not self.has_pilot_file:
            return Begun(self.opening(known), {})
        g = self.gradient(known, self.clients)  # lines 14-22
        # Archived models of other starts, or of other origin, have no gradient to compare.
        past = tuple(p for p in known.archive.past if p.gradient.numel())
        if not past:
            return Begun(self.opening(known), {}, g)
        gaps = torch.tensor([self.gap(g, p.gradient, known.layout) for p in past])
        mu = similarity_weights(gaps, self.R)
        facts = {
            "start_weights": mu.tolist(),
            "start_from": [p.session for p in past],
            "start_distances": gaps.tolist(),
            "stored_floats": known.archive.floats,
        }
        return Begun(Archive(past=past).mixed(mu, known.initial), facts, g)  # Eq. 18

    def gradient(self, known: Beginning, clients: int, half: int = 0) -> Vector:
        """G_s: the change of the pilot model in V rounds with `clients` clients, or half of them (Eq. 17)."""
        pilot = known.archive.pilot
        if isinstance(pilot, Nothing):
            pilot = model_from_file(self.pilot, known.initial, known.layout)
        used = self.memories == "used"
        return known.gradient_rounds(pilot, self.V, clients, half, used).x - pilot.x

    def gap(self, one: Vector, other: Vector, layout: Layout) -> float:
        """The distance between two gradients; 0 if one was not computed."""
        if not (one.numel() and other.numel()):
            return 0.0
        if self.distance == "two-norm":
            return float((one - other.to(one)).norm())
        return normalised_distance(one, other.to(one), layout)

    def drift(self, era: Era, known: Beginning, clients: int) -> float:
        if not era.gradient.numel():  # in the pilot, where every change leads to a start
            return math.inf
        if min(clients or 2, len(known.session.clients)) < 2:  # one client has no halves
            return 0.0
        one, other = (self.gradient(known, clients, half) for half in (1, 2))
        r = max(0.0, cosine(one, other, known.layout))
        return 2 * r / (1 + r) - cosine((one + other) / 2, era.gradient, known.layout)

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        if past.session >= self.P:
            kept = self.keep.added(
                archive.past, past, lambda a, b: self.gap(a.gradient, b.gradient, layout)
            )
            is_pilot = isinstance(archive.pilot, Nothing) and not self.has_pilot_file
            pilot = past.model if is_pilot else archive.pilot  # of an archive without one
            return Archive(pilot, kept)
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
            accuracy = torch.tensor([p.credit for p in pilots])
            weights = (accuracy >= min(self.good, float(accuracy.max()))).float()
        total: Tensor = weights.sum()
        return weights / total


def model_from_file(file: str, like: Model, layout: Layout) -> Model:
    """The model in a file, such as model.safetensors of an earlier run, if it has the shape of `like`."""
    try:
        stored = load_file(Path(file).expanduser())
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"start.pilot must be a safetensors file. Got {file!r}: {error}. Name the model.safetensors of "
            "an earlier run."
        ) from error
    wanted = {**layout.unpack(like.x), **like.buffers}
    misfits = [
        name for name in wanted if name not in stored or stored[name].shape != wanted[name].shape
    ]
    misfits += [name for name in stored if name not in wanted]
    require(
        not misfits,
        "start.pilot",
        "a file with the parameters of this study's model",
        file,
        f"{len(misfits)} tensors do not fit, the first is {(misfits or [''])[0]!r}.",
    )
    fitted = {name: stored[name].to(wanted[name]) for name in wanted}
    buffers = {name: fitted[name] for name in like.buffers}
    return Model(layout.pack(fitted), buffers)


def similarity_weights(gaps: Tensor, R: float) -> Tensor:
    """The weights mu of earlier sessions at these distances (Eq. 19); R = inf is their limit."""
    nearest = gaps == gaps.min()
    weights: Tensor = nearest / nearest.sum() if math.isinf(R) else torch.softmax(-R * gaps, 0)
    return weights


def normalised_distance(one: Vector, other: Vector, layout: Layout) -> float:
    """The mean, over all parameters but biases, of || a / ||a|| - b / ||b|| ||; between 0 and 2."""
    return _mean_over_weights(lambda a, b: (a - b).norm(), one, other, layout)


def cosine(one: Vector, other: Vector, layout: Layout) -> float:
    """The mean, over all parameters but biases, of the cosine between a and b; between -1 and 1."""
    return _mean_over_weights(lambda a, b: (a * b).sum(), one, other.to(one), layout)


def _mean_over_weights(
    compare: Callable[[Tensor, Tensor], Tensor], one: Vector, other: Vector, layout: Layout
) -> float:
    """The mean of a comparison of directions, over all parameters but biases."""
    a, b = layout.unpack(one), layout.unpack(other)
    names = [name for name in layout.names if "bias" not in name] or layout.names
    found = [compare(_direction(a[name]), _direction(b[name])) for name in names]
    return float(torch.stack(found).mean())


def _direction(g: Tensor) -> Tensor:
    size: Tensor = g.norm()
    return g / size.clamp(min=TINY)
