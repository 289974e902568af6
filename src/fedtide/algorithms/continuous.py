"""Continuous: federated continual learning by distillation, a baseline of Chang et al. (DIMC).

The teacher is the model at the last start (with start "previous" the last session's), viewed with the global
buffers and sent in every round. "kl": KL(teacher || student), no temperature, the code of Chang et al.
"relation": binary cross entropy with the teacher's sigmoids, GLFC (Dong et al., CVPR 2022) for old labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from fedtide.algorithms.base import Algorithm, Change, Context, Look, Survey
from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Outputs, Vector, Walk


class Server(NamedTuple):
    """State of the server, and in the same shape what it sends."""

    x: Vector
    of: Any  # the other algorithm's
    teacher: Vector


@dataclass(frozen=True, kw_only=True)
class Continuous(Algorithm[Server, Server, Any, Any]):
    """Any other algorithm, held to what the session's first model says."""

    of: Algorithm[Any, Any, Any, Any] = field(default_factory=FedAvg)
    loss: Literal["kl", "relation"] = "kl"
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(self.weight >= 0, "algorithm.weight", "zero or positive", self.weight)

    @property
    def surveys(self) -> Literal["never", "epochs", "end"]:  # type: ignore[override]
        return self.of.surveys

    def has_own(self, method: str) -> bool:
        return method == "penalty" or bool(self._hands_on(method).has_own(method))

    def stacks_in(self, method: str) -> bool:
        return bool(self._hands_on(method).stacks_in(method))

    def _hands_on(self, method: str) -> Any:
        """To whom: to the other algorithm, unless a subclass has something of its own there."""
        inherits = getattr(type(self), method) is getattr(Continuous, method)
        return self.of if inherits else super()

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, self.of.init(x, context), x)

    def restart(self, server: Server, x: Vector, context: Context) -> Server:
        return Server(x, self.of.restart(server.of, x, context), x)

    def broadcast(self, server: Server) -> Server:
        return Server((down := self.of.broadcast(server.of)).x, down, server.teacher)

    def memory(self, down: Server) -> Any:
        return self.of.memory(down.of)

    def row(self, mine: Any) -> Any:
        return self.of.row(mine)

    def sent(self, up: Any) -> Any:
        return self.of.sent(up)

    def changed(self, server: Server, change: Change) -> Server:
        of = self.of.changed(server.of, change)
        return Server(of.x, of, of.x if change.start else server.teacher)

    def facts(self, server: Server, cohort: Cohort) -> Mapping[str, Any]:
        return self.of.facts(server.of, cohort)

    def penalty(self, y: Vector, out: Outputs, look: Look, down: Server, mine: Any) -> Tensor:
        old, new = look(down.teacher).logits, out.logits
        if self.loss == "kl":
            p, q = old.log_softmax(-1), new.log_softmax(-1)
            each = (p.exp() * (p - q)).sum(-1)
        else:
            each = bce(new, old.sigmoid(), reduction="none").mean(-1)
        return self.weight * each + self.of.penalty(y, out, look, down.of, mine)

    def direction(self, grad: Vector, y: Vector, k: int, down: Server, mine: Any) -> Vector:
        return self.of.direction(grad, y, k, down.of, mine)

    def rate(self, lr: float, down: Server, mine: Any) -> Tensor | float:
        return self.of.rate(lr, down.of, mine)

    def survey(self, y: Vector, epoch: Tensor, survey: Survey, down: Server, mine: Any) -> Any:
        return self.of.survey(y, epoch, survey, down.of, mine)

    def report(self, y: Vector, walk: Walk, down: Server, mine: Any) -> tuple[Any, Any]:
        return self.of.report(y, walk, down.of, mine)

    def aggregate(self, server: Server, up: Any, cohort: Cohort) -> Server:
        of = self.of.aggregate(server.of, up, cohort)
        return Server(of.x, of, server.teacher)
