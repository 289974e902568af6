"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020, Eqs. 6-7.

||a_i||_1 comes from the local optimiser in closed form (steps for plain SGD; the geometric sums of the
paper for momentum). For Adam the paper defines none and the number of steps is used.
"""

from dataclasses import dataclass

from fedtide.algorithms.fedavg import Averaging, Server, Upload
from fedtide.core.types import Cohort, Nothing


@dataclass(frozen=True, kw_only=True)
class FedNova(Averaging[Nothing]):
    """Updates are normalised by the clients' local work before they are averaged."""

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        p, a = self.share(cohort), cohort.walk.weight  # p_i, ||a_i||_1
        scale = 1 + (a - a[:, None]) @ p / a  # tau_eff / ||a_i||_1, exactly 1 where all are equal
        mean = (p * scale) @ up.delta
        return Server(*self.server.step(server.x, mean, server.rule))
