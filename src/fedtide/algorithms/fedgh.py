"""FedGH: Yi, Wang, Liu, Shi and Yu, "FedGH: Heterogeneous Federated Learning with Generalized Global Header",
ACM Multimedia 2023, Algorithm 1, for clients with one architecture.

Clients train the whole model, then send the mean feature of each label they hold; the server trains the
head on these prototypes. (In the authors' script the server's step moves a client's optimiser, so its head
never changes; here it does.) Two choices are ours:

* Bodies are averaged by share of examples. In the paper every client keeps its own, so there is no global
  model to speak of; with a mean body there is one, and `accuracy` is that of mean body and server's head.
* The server makes `head_steps` steps of gradient descent on all prototypes at once, each prototype counting
  the same; the paper makes one pass of mini-batches, whose order would have to be drawn.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context, Survey
from fedtide.algorithms.parts.halves import Halves, halved, is_head
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Prototypes(NamedTuple):
    """What a client knows of each label."""

    mean: Tensor  # [classes, features]
    held: Tensor  # [classes]: 1 for labels it holds


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # of the body
    prototypes: Prototypes


@dataclass(frozen=True, kw_only=True)
class FedGH(Algorithm[Halves, Halves, Nothing | Prototypes, Upload]):
    """The server learns the head from the clients' prototypes."""

    head_lr: float = 0.1
    head_steps: int = 10

    surveys = "end"
    needs = "labels"

    def __post_init__(self) -> None:
        require(self.head_lr > 0, "algorithm.head_lr", "positive", self.head_lr)
        require(self.head_steps >= 1, "algorithm.head_steps", "at least 1", self.head_steps)

    def init(self, x: Vector, context: Context) -> Halves:
        layout = context.layout
        head = [len(s) for n, s in zip(layout.names, layout.shapes, strict=True) if is_head(n)]
        require(
            head == [2, 1],
            "train.model's head",
            "one linear layer with a bias for FedGH, whose server trains it",
            f"parameters with {head} dimensions",
            "Choose another model, for example mlp.",
        )
        return halved(x, layout, "FedGH")

    def broadcast(self, server: Halves) -> Halves:
        return server

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Halves, mine: Nothing | Prototypes
    ) -> Prototypes:
        features, logits = survey.outputs(y)
        labels = torch.arange(logits.shape[-1], device=y.device)
        member = ((survey.targets == labels[:, None]) * survey.mask).to(y)  # [classes, N]
        count = member.sum(1)
        mean = member @ features.flatten(1) / count.clamp(min=1)[:, None]
        return Prototypes(mean, (count > 0).to(y))

    def report(
        self, y: Vector, walk: Walk, down: Halves, mine: Nothing | Prototypes
    ) -> tuple[Upload, Nothing]:
        return Upload(y[: len(down.body)] - down.body, cast(Prototypes, mine)), Nothing()

    def aggregate(self, server: Halves, up: Upload, cohort: Cohort) -> Halves:
        mean, held = up.prototypes
        labels, features = mean.shape[1:]
        weight, bias = torch.split(server.head, [labels * features, labels])
        weight = weight.view(labels, features)
        own, each = torch.eye(labels).to(weight), held[..., None] / held.sum()
        for _ in range(self.head_steps):
            error = (
                torch.softmax(mean @ weight.T + bias, -1) - own
            ) * each  # [U, classes, classes]
            weight = weight - self.head_lr * torch.einsum("ucl,ucf->lf", error, mean)
            bias = bias - self.head_lr * error.sum((0, 1))
        head = torch.cat([weight.flatten(), bias])
        return Halves(server.body + cohort.share @ up.delta, head)
