"""MOON: Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1.

A newcomer has no previous model; the global model it receives takes that place, so the contrast begins at
log 2 and carries no gradient. Previous models are viewed with the global model's buffers.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedtide.algorithms.base import Look
from fedtide.algorithms.fedavg import Averaging, Down, Upload
from fedtide.core.errors import require
from fedtide.core.types import Batch, Outputs, Vector, Walk


class Memory(NamedTuple):
    """State of a client."""

    x: Vector  # w_i^{t-1}: its model at the end of its last round


@dataclass(frozen=True, kw_only=True)
class Moon(Averaging[Memory]):
    """Features should resemble the global model's and differ from the client's previous ones."""

    needs = "features"

    mu: float = 1.0
    tau: float = 0.5

    def __post_init__(self) -> None:
        require(self.mu >= 0, "algorithm.mu", "zero or positive", self.mu)
        require(self.tau > 0, "algorithm.tau", "positive", self.tau)

    def memory(self, down: Down) -> Memory:
        return Memory(down.x)

    def penalty(
        self, y: Vector, out: Outputs, batch: Batch, look: Look, down: Down, mine: Memory
    ) -> Tensor:
        z, z_glob, z_prev = (o.features.flatten(1) for o in (out, look(down.x), look(mine.x)))
        near = cosine_similarity(z, z_glob, dim=-1) / self.tau
        far = cosine_similarity(z, z_prev, dim=-1) / self.tau
        return self.mu * softplus(far - near)  # -log e^near / (e^near + e^far)

    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        return Upload(y - down.x), Memory(y)
