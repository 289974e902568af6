"""FedAgg's optimal control: Eqs. 13-15 of Yuan and Wang, "FedAgg: Adaptive Federated Learning with
Aggregated Gradients", solved exactly.

With w_{k+1} = w_k - eta_k phi1_k a client minimises, over the rates of its remaining epochs,

    sum_k  alpha eta_k^2 + (1 - alpha) ||w_k - phi2_k||^2.

That is a quadratic, and its stationary point is Eq. 15 for all remaining epochs at once: a small linear
system in the Gram matrix of phi1. The answer is linear in w_l, so it can be written as a feedback law.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """Mean-field terms of a round, or one client's part in them; m is the model's dim or less."""

    phi1: Tensor  # [L, m]: phi1_l, gradients at the start of epochs 0 .. L - 1
    d: Tensor  # [L, m]: phi2_k - w, displacements from the global model at k = 1 .. L


class Law(NamedTuple):
    """eta_l = K_l (w_l - w) + v_l: the optimal rate of epoch l for a client that stands at w_l."""

    K: Tensor  # [L, m]
    v: Tensor  # [L]


def optimal_rates(gram: Tensor, pull: Tensor, alpha: float) -> Tensor:
    """The rates of the n remaining epochs: Eq. 15 for r = 0 .. n - 1.

    gram[r, p] = <phi1_r, phi1_p>, pull[r] = <phi1_r, sum over k > r of (w_0 - phi2_k)>, all counted from
    the present epoch. phi1_p moves the n - max(r, p) positions that rate r can still answer for.
    """
    rates: Tensor = torch.linalg.solve(_system(gram, alpha), (1 - alpha) / alpha * pull)
    return rates


def feedback(terms: Terms, alpha: float) -> Law:
    """The law that follows from these terms."""
    phi1, d = terms
    gram = phi1 @ phi1.T
    behind = (
        (phi1 @ d.T).triu().sum(1)
    )  # <phi1_r, sum over k > r of d_k>; column k - 1 belongs to d_k
    K, v = [], []
    for now in range(len(phi1)):
        first = torch.eye(len(phi1) - now).to(phi1)[0]
        row = optimal_rates(gram[now:, now:], first, alpha)  # of the inverse, as that is symmetric
        left = torch.arange(len(row), 0, -1).to(row)  # L - r
        K.append((row * left) @ phi1[now:])
        v.append(-row @ behind[now:])
    return Law(torch.stack(K), torch.stack(v))


def _system(gram: Tensor, alpha: float) -> Tensor:
    place = torch.arange(len(gram))
    left = (len(gram) - torch.maximum(place[:, None], place)).to(gram)
    return torch.eye(len(gram)).to(gram) + (1 - alpha) / alpha * left * gram
