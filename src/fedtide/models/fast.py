"""The networks of FAST.

Li et al., "FAST: A Lightweight Mechanism Unleashing Arbitrary Client Participation in Federated
Learning", as its public repository builds them. Its character LSTM is in `text.py`.
"""

from dataclasses import dataclass

from torch import nn

from fedtide.core.errors import require
from fedtide.models.base import (
    EmbedHead,
    ModelSpec,
    Shape,
    check_dropout,
    check_images,
    dropout,
    width,
)


@dataclass(frozen=True, kw_only=True)
class FashionCnn(ModelSpec):
    """Two unpadded convolutions, one pool and FC 128; 1,206,590 parameters on Fashion-MNIST.

    The paper's code has 62 outputs (it was written for EMNIST) although ten classes are used;
    `outputs = 0` means one output per class.
    """

    outputs: int = 62
    body_dropout: float = 0.25  # after the pool
    dropout: float = 0.5  # before the last layer

    def __post_init__(self) -> None:
        require(self.outputs >= 0, "train.model.outputs", "0 or more", self.outputs)
        check_dropout("body_dropout", self.body_dropout)
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("fashion-cnn", shape, vocabulary, least=6)
        outputs = self.outputs or classes
        must = f"at least the number of classes, {classes}"
        require(outputs >= classes, "train.model.outputs", must, outputs)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            dropout(self.body_dropout),
            nn.Flatten(),
        )
        embed = nn.Sequential(body, nn.Linear(width(body, shape), 128), nn.ReLU())
        return EmbedHead(embed, nn.Sequential(dropout(self.dropout), nn.Linear(128, outputs)))


@dataclass(frozen=True, kw_only=True)
class CifarCnn(ModelSpec):
    """Convolutions 16, 32, 64, each with a pool, and FC 500; 541,094 parameters on CIFAR-10."""

    dropout: float = 0.25  # before each of the two last layers

    def __post_init__(self) -> None:
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("cifar-cnn", shape, vocabulary, least=8)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            dropout(self.dropout),
        )
        embed = nn.Sequential(body, nn.Linear(width(body, shape), 500), nn.ReLU())
        return EmbedHead(embed, nn.Sequential(dropout(self.dropout), nn.Linear(500, classes)))


@dataclass(frozen=True, kw_only=True)
class MnistCnn(ModelSpec):
    """Convolutions 16 and 32, each with a pool, and a linear layer; 28,938 parameters on MNIST."""

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("mnist-cnn", shape, vocabulary, least=4)
        embed = nn.Sequential(
            nn.Conv2d(shape[0], 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        return EmbedHead(embed, nn.Linear(width(embed, shape), classes))
