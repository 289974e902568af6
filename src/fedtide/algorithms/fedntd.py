"""FedNTD: Lee, Jeong, Shin, Bae and Yun, "Preservation of the Global Knowledge by Not-True Distillation in
Federated Learning", NeurIPS 2022, arXiv 2106.03097.

The divergence is multiplied by tau^2, as in the authors' code, whose defaults (tau = 3, beta = 1) are ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.algorithms.base import Look
from fedtide.algorithms.fedavg import Averaging, Down
from fedtide.core.errors import require
from fedtide.core.types import Batch, Nothing, Outputs, Vector


@dataclass(frozen=True, kw_only=True)
class FedNTD(Averaging[Nothing]):
    """FedAvg with a distillation loss: the global model is the teacher, and the true label is left out."""

    needs = "labels"

    beta: float = 1.0
    tau: float = 3.0

    def __post_init__(self) -> None:
        require(self.beta >= 0, "algorithm.beta", "zero or positive", self.beta)
        require(self.tau > 0, "algorithm.tau", "positive", self.tau)

    def penalty(
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Down, mine: Nothing
    ) -> Tensor:
        """Beta tau^2 KL(q_g || q_l), where q are softmaxes over the labels other than the target."""
        labels = torch.arange(out.logits.shape[-1], device=y.device)
        true = batch.targets[:, None] == labels
        log_l, log_g = (
            (logits / self.tau).masked_fill(true, -1e9).log_softmax(-1)
            for logits in (out.logits, look(down.x).logits)
        )
        each = (log_g.exp() * (log_g - log_l)).masked_fill(true, 0).sum(-1)
        return self.beta * self.tau**2 * each
