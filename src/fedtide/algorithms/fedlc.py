"""FedLC: Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022,
arXiv 2209.00189.

A label that a client does not hold has n = 0 and an infinite margin in the paper; here n is at least 1e-8, so
that its margin is 100 tau and the label all but drops out of the softmax.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtide.algorithms.base import Look, Survey
from fedtide.algorithms.fedavg import Averaging, Down, Upload
from fedtide.core.errors import require
from fedtide.core.types import Batch, Nothing, Outputs, Vector, Walk


class Margins(NamedTuple):
    """What a client computes from its labels before its first step."""

    margin: Tensor  # [classes]: tau n_c^(-1/4)


@dataclass(frozen=True, kw_only=True)
class FedLC(Averaging[Nothing | Margins]):
    """Logits are calibrated by how many examples of each label the client holds."""

    surveys = "begin"
    needs = "labels"

    tau: float = 1.0

    def __post_init__(self) -> None:
        require(self.tau >= 0, "algorithm.tau", "zero or positive", self.tau)

    def survey(
        self, y: Vector, epoch: Tensor, survey: Survey, down: Down, mine: Nothing | Margins
    ) -> Margins:
        labels = torch.arange(survey.outputs(y).logits.shape[-1], device=y.device)
        n = ((survey.targets == labels[:, None]) * survey.mask).sum(1).to(y)
        return Margins(self.tau * n.clamp(min=1e-8) ** -0.25)

    def penalty(
        self,
        y: Vector,
        out: Outputs,
        batch: Batch,
        look: Look,
        down: Down,
        mine: Nothing | Margins,
    ) -> Tensor:
        """CE(f - margin, target) minus the CE(f, target) of the task."""
        margin = cast(Margins, mine).margin
        calibrated = cross_entropy(out.logits - margin, batch.targets, reduction="none")
        return calibrated - cross_entropy(out.logits, batch.targets, reduction="none")

    def report(
        self, y: Vector, walk: Walk, down: Down, mine: Nothing | Margins
    ) -> tuple[Upload, Nothing]:
        return Upload(y - down.x), Nothing()
