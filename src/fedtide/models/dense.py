"""Fully connected models.

`linear` is logistic regression: MNIST and Fashion-MNIST in Chang et al., "Communication-Efficient
Federated Learning under Dynamic Device Arrival and Departure", and MNIST-Linear in FedAgg (Yuan
and Wang). `mlp` is by default the 2NN of McMahan et al., "Communication-Efficient Learning of Deep
Networks from Decentralized Data" (AISTATS 2017).
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from fedtide.models.base import EmbedHead, ModelSpec, Shape, check_numbers, check_widths


@dataclass(frozen=True, kw_only=True)
class Linear(ModelSpec):
    """One linear layer; 784 -> 10 has 7,850 parameters.

    The features for MOON are the logits. The log_softmax at the end of Chang et al.'s model is left to the
    cross entropy, which applies it anyway.
    """

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_numbers("linear", vocabulary)
        embed = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
        return EmbedHead(embed, nn.Identity())


@dataclass(frozen=True, kw_only=True)
class Mlp(ModelSpec):
    """Hidden layers with ReLU, then a linear layer; two of 200 units have 199,210 parameters on MNIST."""

    hidden: tuple[int, ...] = (200, 200)

    def __post_init__(self) -> None:
        check_widths("hidden", self.hidden)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_numbers("mlp", vocabulary)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise((prod(shape), *self.hidden)):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return EmbedHead(nn.Sequential(*layers), nn.Linear(self.hidden[-1], classes))
