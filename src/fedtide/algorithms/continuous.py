"""Continuous: federated continual learning by distillation, a baseline of Chang et al. (DIMC).

The teacher is the model at the last start (with start "previous" the last session's), viewed with the global
buffers and sent in every round. "kl": KL(teacher || student), no temperature, the code of Chang et al.
"relation": binary cross entropy with the teacher's sigmoids, GLFC (Dong et al., CVPR 2022) for old labels.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from fedtide.algorithms.base import Look, Teacher
from fedtide.algorithms.wrapper import Wrapper
from fedtide.core.errors import require
from fedtide.core.types import Batch, Outputs, Vector


class Server(NamedTuple):
    """State of the server, and in the same shape what it broadcasts."""

    x: Vector
    of: Any  # the wrapped algorithm's state
    teacher: Vector


@dataclass(frozen=True, kw_only=True)
class Continuous(Wrapper):
    """Any other algorithm, with the outputs of the session's first model as a distillation target."""

    loss: Literal["kl", "relation"] = "kl"
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(self.weight >= 0, "algorithm.weight", "zero or positive", self.weight)
        require(
            self.loss != "kl" or not self.of.has_own("teacher"),
            "algorithm.of",
            "an algorithm without a teacher of its own: a client's loss has room for one",
            type(self.of).__name__,
        )

    def wrap(self, of: Any) -> Server:
        return Server(of.x, of, teacher=of.x)

    def teacher(self, down: Server) -> Teacher | None:
        kl = self.loss == "kl" and self.weight > 0
        return Teacher(down.teacher, self.weight) if kl else super().teacher(down)

    def penalty(
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Server, mine: Any
    ) -> Tensor | float:
        others = super().penalty(y, out, batch, look, down, mine)
        if self.loss == "kl":
            return others
        old = look(down.teacher).logits.sigmoid()
        each = bce(out.logits, old, reduction="none").flatten(1).mean(1)
        return self.weight * each + others

    def has_own(self, method: str) -> bool:
        """With "kl" the penalty is the wrapped algorithm's alone, unless a subclass has its own."""
        if method == "penalty" and type(self).penalty is Continuous.penalty and self.loss == "kl":
            return self.of.has_own(method)
        return super().has_own(method)
