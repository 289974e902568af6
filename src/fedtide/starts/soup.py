"""Soup: a session begins with the average of earlier models that its clients find best.

After Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves accuracy
without increasing inference time" (ICML 2022, https://arxiv.org/abs/2203.05482), where fine-tuned models are
tested on a validation set. Here the models are the current one, w_0, and the last ones of earlier sessions,
w_1 ... w_H, and the clients that exist now test them on their own training examples:

1. each client u returns its mean loss f_u(w_h) at every model;
2. the server orders the models by the mean loss over clients;
3. each client returns its mean loss at the averages of the best 2, 3, ..., H + 1 of them, and at the mixes
   that other starts propose if the study names such starts; it holds the models already, so only numbers
   travel;
4. the model or average c with the lowest mean loss is taken if it beats the current model beyond chance: if
   the mean of d_u = f_u(c) - f_u(w_0) is below -margin times its standard error as an estimate of the mean
   over all present clients. Otherwise w_0 stays. If all of them answered, that mean is known: no error.

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
from fedtide.core.types import Ids, Model, Nothing, Tested
from fedtide.starts.archive import NONE, Archive, Diverse, Past, Retention
from fedtide.starts.base import Beginning, Begun, Start

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Soup(Start):
    """The average of earlier models that the present clients find best in a test, or the current model."""

    tests: ClassVar[bool] = True
    archives: ClassVar[bool] = True
    P: int = 0  # it needs no pilot
    clients: int = 0  # clients that test; 0: all
    # What clients weigh in the mean loss; "algorithm": what they weigh in the server's mean.
    weights: Literal["algorithm", "examples", "equal"] = "algorithm"
    margin: float = 1.0  # standard errors by which another model must beat the current one
    robust: Literal["mean", "trimmed"] = "mean"
    share: float = 0.1  # of the answers: "trimmed" leaves so many out at either end
    keep: Retention = field(default_factory=lambda: Diverse(H=5))
    also: tuple[Start, ...] = ()  # starts whose mix is tested, too: "average", "similarity"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 0, "start.clients", "zero or positive", self.clients)
        require(self.margin >= 0, "start.margin", "zero or positive", self.margin)
        require(0 < self.share < 0.5, "start.share", "in (0, 0.5)", self.share)
        mixing = all(s.archives and not s.tests and s.P <= 1 for s in self.also)
        must = (
            "starts that mix earlier models, such as 'average' and 'similarity', with P at most 1"
        )
        require(mixing, "start.also", must, [type(s).__name__ for s in self.also])

    def begin(self, known: Beginning) -> Begun:
        # The newest model of the archive is the current one, which is no candidate twice.
        past = tuple(p for p in known.archive.past if p.session < known.number - 1)
        proposed = [other.begin(known) for other in self.also]
        gradient = next((b.gradient for b in proposed if b.gradient.numel()), NONE)
        opening = self.opening(known)
        if not past or opening is not known.last:
            return Begun(opening, {}, gradient)
        models = [known.last, *Archive(past=past).models(known.initial)]
        sessions = [known.number - 1, *(p.session for p in past)]
        mixes, tested = self.test(known, models, weights_over(sessions, proposed))
        weight = self.client_weights(tested, known)
        absent = 1 - len(tested.ids) / len(known.session.clients)
        taken, gain = self.choice(tested, weight, absent)
        facts = {
            "start_from": sessions,
            "start_weights": mixes[taken].tolist(),
            "start_tests": mixes.tolist(),
            "start_losses": self.means(tested.losses, weight)[0].tolist(),
            "start_gain": gain,
            "stored_floats": known.archive.floats,
        }
        model = mixed(models, mixes[taken]) if taken else known.last  # step 4
        return Begun(model, facts, gradient)

    def test(
        self, known: Beginning, models: list[Model], proposed: Tensor
    ) -> tuple[Tensor, Tested]:
        """What was tested, as weights of the models, and the losses of clients that answered every test."""
        alone = torch.eye(len(models))
        first = known.losses(models, alone, self.clients)  # step 1
        means = self.means(first.losses, self.client_weights(first, known))[0]
        order = np.argsort(means, kind="stable")  # step 2
        best = torch.eye(len(models))[torch.from_numpy(order)].cumsum(0)
        averages = torch.cat([(best / best.sum(1, keepdim=True))[1:], proposed])
        second = known.losses(models, averages, ids=first.ids)  # step 3
        if not len(second.ids):
            return alone, first
        first = first.some(second.ids)
        losses = np.concatenate([first.losses, second.losses])
        return torch.cat([alone, averages]), first._replace(losses=losses)

    def client_weights(self, tested: Tested, known: Beginning) -> Numbers:
        """What each client that answered weighs in a mean."""
        by_examples = self.weights == "examples" or (
            self.weights == "algorithm" and known.counts_examples
        )
        return tested.weight if by_examples else np.ones_like(tested.weight)

    def choice(self, tested: Tested, weight: Numbers, absent: float) -> tuple[int, float]:
        """The model that is taken, and by how much its mean loss is below the current model's (step 4).

        The share `absent` of the clients did not answer: the standard error of a sample's mean shrinks to 0
        as the sample becomes the whole (finite population correction). A trimmed mean remains an estimate.
        """
        if not len(tested.ids):
            return 0, 0.0
        if len(tested.ids) == 1 and absent and self.margin:  # one answer says nothing about chance
            return 0, 0.0
        mean, error = self.means(tested.losses - tested.losses[0], weight)
        if self.robust == "mean":
            error = error * np.sqrt(absent)
        best = int(mean.argmin())
        taken = best if mean[best] < -self.margin * error[best] else 0
        return taken, -float(mean[taken])

    def means(self, each: Numbers, weight: Numbers) -> tuple[Numbers, Numbers]:
        """The mean over clients of every row of `each` [m, U], and its standard error; 0 with one client."""
        weight = np.broadcast_to(weight, each.shape)
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
        pilot = archive.pilot
        if self.also and isinstance(pilot, Nothing):
            pilot = past.model  # gradients of a similarity start begin at it
        return Archive(pilot, self.keep.added(others, past, distance))


def weights_over(sessions: list[int], proposed: list[Begun]) -> Tensor:
    """The mixes that other starts propose, as weights of the models of these sessions."""
    rows = torch.zeros(len(proposed), len(sessions))
    for row, begun in zip(rows, proposed, strict=True):
        for session, weight in zip(
            begun.facts.get("start_from", sessions[:1]),
            begun.facts.get("start_weights", [1.0]),
            strict=True,
        ):
            row[sessions.index(session)] = weight
    return rows


def are_same(one: Ids, other: Ids) -> bool:
    """Are these the same clients, in any order?"""
    return np.array_equal(np.sort(one), np.sort(other))


def distance(one: Past, other: Past) -> float:
    """Between the models of two sessions."""
    return float((one.model.x - other.model.x.to(one.model.x)).norm())
