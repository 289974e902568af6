"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020, Eqs. 6-7.

||a_i||_1 comes from the local optimiser in closed form (steps for plain SGD; the geometric sums of the
paper for momentum). For Adam the paper defines none and the number of steps is used.
"""

from dataclasses import dataclass

from torch import Tensor

from fedtide.algorithms.fedavg import Averaging
from fedtide.core.types import Nothing, Walk


@dataclass(frozen=True, kw_only=True)
class FedNova(Averaging[Nothing]):
    """Updates are normalised by the clients' local work before they are averaged."""

    def weigh(self, share: Tensor, walk: Walk) -> Tensor:
        p, a = super().weigh(share, walk), walk.weight  # p_i, ||a_i||_1
        scale = 1 + (a - a[:, None]) @ p / a  # tau_eff / ||a_i||_1, exactly 1 where all are equal
        return p * scale
