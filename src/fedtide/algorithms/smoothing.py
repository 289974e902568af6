"""Label smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016,
section 7, for the clients of any algorithm.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtide.algorithms.base import Look
from fedtide.algorithms.wrapper import Wrapper
from fedtide.core.errors import require
from fedtide.core.types import Batch, Outputs, Vector


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Wrapper):
    """Any other algorithm; clients move the share `smoothing` of every target to all labels alike."""

    needs = "labels"

    smoothing: float = 0.1  # epsilon

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "algorithm.smoothing", "in [0, 1)", self.smoothing)

    def penalty(
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Any, mine: Any
    ) -> Tensor | float:
        """(1 - epsilon) CE(p, target) + epsilon CE(p, uniform), minus the CE(p, target) of the task."""
        uniform = -out.logits.log_softmax(-1).mean(-1)
        change = uniform - cross_entropy(out.logits, batch.targets, reduction="none")
        return self.smoothing * change + super().penalty(y, out, batch, look, down, mine)
