"""The network of FedDyn.

Acar et al., "Federated Learning Based on Dynamic Regularization" (ICLR 2021): its network for
CIFAR, as the official code builds it.
"""

from dataclasses import dataclass

from torch import nn

from fedtide.models.base import EmbedHead, ModelSpec, Shape, check_images, width


@dataclass(frozen=True, kw_only=True)
class FedDynCnn(ModelSpec):
    """Two unpadded 5 x 5 convolutions of 64 with pools, FC 384 and 192; 797,962 parameters on CIFAR-10."""

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("feddyn-cnn", shape, vocabulary, least=16)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        dense = (nn.Linear(width(body, shape), 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU())
        return EmbedHead(nn.Sequential(body, *dense), nn.Linear(192, classes))
