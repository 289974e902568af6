"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2.

The proximal term mu/2 ||y - x||^2 enters as its gradient. The reported loss is the plain one.
"""

from dataclasses import dataclass

from fedtide.algorithms.base import stacked
from fedtide.algorithms.fedavg import Averaging, Down
from fedtide.core.errors import require
from fedtide.core.types import Nothing, Vector


@dataclass(frozen=True, kw_only=True)
class FedProx(Averaging[Nothing]):
    """Clients are pulled back towards the global model."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        require(self.mu >= 0, "algorithm.mu", "zero or positive", self.mu)

    @stacked
    def direction(self, grad: Vector, y: Vector, k: int, down: Down, mine: Nothing) -> Vector:
        return grad + self.mu * (y - down.x)
