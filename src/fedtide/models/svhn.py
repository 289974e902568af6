"""The networks for SVHN of the two papers on dynamic arrivals and departures.

Chang et al., "Communication-Efficient Federated Learning under Dynamic Device Arrival and
Departure: Convergence Analysis and Algorithm Design": `svhn-cnn`, whose 667,178 parameters
Table I gives. "Federated Learning with Dynamic Client Arrival and Departure: Convergence and Rapid
Adaptation via Initial Model Construction", appendix D.2: `svhn-cnn-small`.
"""

from dataclasses import dataclass

from torch import nn

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
class SvhnCnn(ModelSpec):
    """Five convolutions with BatchNorm and FC 256; 667,178 parameters on SVHN.

    The features for MOON are the 256 units after their ReLU, before dropout.
    """

    dropout: float = 0.4

    def __post_init__(self) -> None:
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("svhn-cnn", shape, vocabulary, least=8)
        body = nn.Sequential(
            *_convolution(shape[0], 32),
            *_convolution(32, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            *_convolution(64, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        return _classifier(body, shape, classes, self.dropout)


@dataclass(frozen=True, kw_only=True)
class SvhnCnnSmall(ModelSpec):
    """Three convolutions and FC 256; 620,362 parameters on SVHN.

    The features for MOON are the 256 units after their ReLU, before dropout.
    """

    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("svhn-cnn-small", shape, vocabulary, least=8)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
        )
        return _classifier(body, shape, classes, self.dropout)


def _convolution(channels_in: int, channels: int) -> tuple[nn.Module, ...]:
    """A convolution with BatchNorm; its bias is redundant, but the published count includes it."""
    convolution = nn.Conv2d(channels_in, channels, 3, padding=1)
    return convolution, nn.BatchNorm2d(channels), nn.ReLU()


def _classifier(body: nn.Module, shape: Shape, classes: int, probability: float) -> nn.Module:
    embed = nn.Sequential(body, nn.Linear(width(body, shape), 256), nn.ReLU())
    return EmbedHead(embed, nn.Sequential(dropout(probability), nn.Linear(256, classes)))
