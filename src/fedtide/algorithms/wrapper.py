"""An algorithm around another one: it forwards everything that a subclass does not change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from fedtide.algorithms.base import Algorithm, Change, Context, Look, Survey, Teacher
from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.types import Batch, Cohort, Outputs, Vector, Walk


class Wrapped(NamedTuple):
    """State of the server, and in the same shape what it broadcasts. A subclass may add fields."""

    x: Vector
    of: Any  # the wrapped algorithm's state


@dataclass(frozen=True, kw_only=True)
class Wrapper(Algorithm[Any, Any, Any, Any]):
    """Behaves as `of` does. Override `wrap` to keep more at the server, and any method to change it."""

    of: Algorithm[Any, Any, Any, Any] = field(default_factory=FedAvg)

    def wrap(self, of: Any) -> Any:
        """The server's state at a start, given the wrapped algorithm's."""
        return Wrapped(of.x, of)

    @property
    def surveys(self) -> Literal["never", "begin", "epochs", "end"]:  # type: ignore[override]
        return self.of.surveys

    @property
    def needs(self) -> Literal["nothing", "labels", "features"]:  # type: ignore[override]
        return self.of.needs

    @property
    def weighs(self) -> bool:
        return super().weighs and self.of.weighs

    @property
    def counts_examples(self) -> bool:
        return self.of.counts_examples

    def has_own(self, method: str) -> bool:
        forwards = getattr(type(self), method) is getattr(Wrapper, method)
        return self.of.has_own(method) if forwards else super().has_own(method)

    def is_stacked(self, method: str) -> bool:
        forwards = getattr(type(self), method) is getattr(Wrapper, method)
        return self.of.is_stacked(method) if forwards else super().is_stacked(method)

    def init(self, x: Vector, context: Context) -> Any:
        return self.wrap(self.of.init(x, context))

    def restart(self, server: Any, x: Vector, context: Context) -> Any:
        return self.wrap(self.of.restart(server.of, x, context))

    def changed(self, server: Any, change: Change) -> Any:
        of = self.of.changed(server.of, change)
        return self.wrap(of) if change.start else server._replace(x=of.x, of=of)

    def broadcast(self, server: Any) -> Any:
        down = self.of.broadcast(server.of)
        return server._replace(x=down.x, of=down)

    def aggregate(self, server: Any, up: Any, cohort: Cohort) -> Any:
        of = self.of.aggregate(server.of, up, cohort)
        return server._replace(x=of.x, of=of)

    def weigh(self, share: Tensor, walk: Walk) -> Tensor | None:
        return self.of.weigh(share, walk)

    def move(self, server: Any, total: Any, cohort: Cohort) -> Any:
        of = self.of.move(server.of, total, cohort)
        return server._replace(x=of.x, of=of)

    def facts(self, server: Any, cohort: Cohort) -> Mapping[str, Any]:
        return self.of.facts(server.of, cohort)

    def memory(self, down: Any) -> Any:
        return self.of.memory(down.of)

    def row(self, mine: Any) -> Any:
        return self.of.row(mine)

    def sent(self, up: Any) -> Any:
        return self.of.sent(up)

    def penalty(
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Any, mine: Any
    ) -> Tensor | float:
        return self.of.penalty(y, out, batch, look, down.of, mine)

    def teacher(self, down: Any) -> Teacher | None:
        return self.of.teacher(down.of)

    def direction(self, grad: Vector, y: Vector, k: int, down: Any, mine: Any) -> Vector:
        return self.of.direction(grad, y, k, down.of, mine)

    def rate(self, lr: float, down: Any, mine: Any) -> Tensor | float:
        return self.of.rate(lr, down.of, mine)

    def survey(self, y: Vector, epoch: Tensor, survey: Survey, down: Any, mine: Any) -> Any:
        return self.of.survey(y, epoch, survey, down.of, mine)

    def report(self, y: Vector, walk: Walk, down: Any, mine: Any) -> tuple[Any, Any]:
        return self.of.report(y, walk, down.of, mine)
