"""Soup: a session begins with the average of earlier models that its clients find best.

After Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves accuracy
without increasing inference time" (ICML 2022, https://arxiv.org/abs/2203.05482), where fine-tuned models are
tested on a validation set. Here the models are the current one, w_0, and the last ones of earlier sessions,
w_1 ... w_H, and the clients that exist now test them on their own training examples:

1. each client u returns its mean loss f_u(w_h) at every model;
2. the server orders the models by the mean loss over clients;
3. each client returns its mean loss at the averages of the best 2, 3, ..., H + 1 of them; it holds the
   models already, so only numbers travel;
4. the model or average c with the lowest mean loss is taken if it beats the current model beyond chance: if
   the mean of d_u = f_u(c) - f_u(w_0) is below -margin times its standard error. Otherwise w_0 stays.

So what is taken never has a higher loss than the current model, in the mean by which it was chosen. There is
no pilot session, no gradient round and no threshold.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.core.mix import mixed
from fedtide.core.types import Ids, Model, Tested
from fedtide.starts.archive import Archive, Diverse, Past, Retention
from fedtide.starts.base import Beginning, Begun, Start

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Soup(Start):
    """The average of earlier models that the present clients find best in a test, or the current model."""

    tests: ClassVar[bool] = True
    clients: int = 0  # clients that test; 0: all
    weights: Literal["examples", "equal"] = "examples"  # what clients weigh in the mean loss
    margin: float = 1.0  # standard errors by which another model must beat the current one
    robust: Literal["mean", "trimmed"] = "mean"
    share: float = 0.1  # of the answers: "trimmed" leaves so many out at either end
    keep: Retention = field(default_factory=lambda: Diverse(H=5))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 0, "start.clients", "zero or positive", self.clients)
        require(self.margin >= 0, "start.margin", "zero or positive", self.margin)
        require(0 < self.share < 0.5, "start.share", "in (0, 0.5)", self.share)

    def begin(self, known: Beginning) -> Begun:
        # The newest model of the archive is the current one, which is no candidate twice.
        past = tuple(p for p in known.archive.past if p.session < known.number - 1)
        opening = self.opening(known)
        if not past or opening is not known.last:
            return Begun(opening, {})
        models = [known.last, *Archive(past=past).models(known.initial)]
        mixes, tested = self.test(known, models)
        taken, gain = self.choice(tested)
        facts = {
            "start_from": [known.number - 1, *(p.session for p in past)],
            "start_weights": mixes[taken].tolist(),
            "start_tests": mixes.tolist(),
            "start_losses": self.means(tested.losses, tested.weight)[0].tolist(),
            "start_gain": gain,
            "stored_floats": known.archive.floats,
        }
        return Begun(mixed(models, mixes[taken]) if taken else known.last, facts)  # step 4

    def test(self, known: Beginning, models: list[Model]) -> tuple[Tensor, Tested]:
        """What was tested, as weights of the models, and the losses of clients that answered every test."""
        alone = torch.eye(len(models))
        first = known.losses(models, alone, self.clients)  # step 1
        order = np.argsort(self.means(first.losses, first.weight)[0], kind="stable")  # step 2
        best = torch.eye(len(models))[torch.from_numpy(order)].cumsum(0)
        averages = (best / best.sum(1, keepdim=True))[1:]
        second = known.losses(models, averages, ids=first.ids)  # step 3
        if not len(second.ids):
            return alone, first
        first = first.some(second.ids)
        losses = np.concatenate([first.losses, second.losses])
        return torch.cat([alone, averages]), first._replace(losses=losses)

    def choice(self, tested: Tested) -> tuple[int, float]:
        """The model that is taken, and by how much its mean loss is below the current model's (step 4)."""
        if not len(tested.ids):
            return 0, 0.0
        mean, error = self.means(tested.losses - tested.losses[0], tested.weight)
        best = int(mean.argmin())
        taken = best if mean[best] < -self.margin * error[best] else 0
        return taken, -float(mean[taken])

    def means(self, each: Numbers, weight: Numbers) -> tuple[Numbers, Numbers]:
        """The mean over clients of every row of `each` [m, U], and its standard error; 0 with one client."""
        weight = np.broadcast_to(weight if self.weights == "examples" else 1.0, each.shape)
        if self.robust == "trimmed" and each.shape[1] > 2:
            cut = min(ceil(self.share * each.shape[1]), (each.shape[1] - 1) // 2)
            inner = np.argsort(each, axis=1, kind="stable")[:, cut:-cut]
            each, weight = (np.take_along_axis(part, inner, 1) for part in (each, weight))
        weight = weight / weight.sum(1, keepdims=True)
        mean = (weight * each).sum(1)
        count = each.shape[1]
        spread = (weight**2 * (each - mean[:, None]) ** 2).sum(1) * count / max(count - 1, 1)
        return mean, np.sqrt(spread)

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        if past.session < self.P:
            return archive
        # A second visit of the same clients replaces the first.
        others = tuple(p for p in archive.past if not are_same(p.clients, past.clients))
        return archive._replace(past=self.keep.added(others, past, distance))


def are_same(one: Ids, other: Ids) -> bool:
    """Are these the same clients, in any order?"""
    return np.array_equal(np.sort(one), np.sort(other))


def distance(one: Past, other: Past) -> float:
    """Between the models of two sessions."""
    return float((one.model.x - other.model.x.to(one.model.x)).norm())
