"""The networks of FedAgg.

Yuan and Wang, "FedAgg: Adaptive Federated Learning with Aggregated Gradients", "Local Training
Model Architecture". No code is public and the text leaves gaps; each class says what is guessed here.
Throughout, the paper's "ReLU output layer" is read as a ReLU before a linear output layer.
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
    check_widths,
    dropout,
    norm,
    prepare_convolutions,
    width,
)

_VGG11 = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # 0: a pool


@dataclass(frozen=True, kw_only=True)
class McMahanCnn(ModelSpec):
    """The CNN of McMahan et al. (AISTATS 2017); 1,663,370 parameters on MNIST.

    FedAgg's MNIST-CNN. FedAgg does not give the channels of the first convolution; here they are the
    32 of McMahan et al.
    """

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("mcmahan-cnn", shape, vocabulary, least=4)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        embed = nn.Sequential(body, nn.Linear(width(body, shape), 512), nn.ReLU())
        return EmbedHead(embed, nn.Linear(512, classes))


@dataclass(frozen=True, kw_only=True)
class LeNet5(ModelSpec):
    """LeNet-5 (LeCun et al., 1998) as FedAgg trains it on EMNIST Letters: FC 800-120-84-26.

    Published: 5 x 5 kernels, max pools, 5 x 5 x 32 before the first FC, hence a first convolution that is
    padded and a second that is not. Guessed: the channels of the first convolution, half of the second's.
    """

    channels: int = 16  # of the first convolution

    def __post_init__(self) -> None:
        check_widths("channels", self.channels)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("lenet5", shape, vocabulary, least=12)
        body = nn.Sequential(
            nn.Conv2d(shape[0], self.channels, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(self.channels, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        dense = (nn.Linear(width(body, shape), 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
        return EmbedHead(nn.Sequential(body, *dense), nn.Linear(84, classes))


@dataclass(frozen=True, kw_only=True)
class FedAggCifarCnn(ModelSpec):
    """FedAgg's CIFAR-10-CNN: three 3 x 3 convolutions with pools, 4 x 4 x 64, then FC 1024-512-10.

    Guessed: the channels of the first two convolutions and the dropout; both are those of FAST's similar
    network.
    """

    channels: tuple[int, ...] = (16, 32)  # of the first two convolutions
    dropout: float = 0.25  # before each of the two last layers

    def __post_init__(self) -> None:
        require(len(self.channels) == 2, "train.model.channels", "two numbers", self.channels)
        check_widths("channels", self.channels)
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("fedagg-cifar-cnn", shape, vocabulary, least=8)
        layers: list[nn.Module] = []
        before = shape[0]
        for channels in (*self.channels, 64):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            before = channels
        body = nn.Sequential(*layers, nn.Flatten(), dropout(self.dropout))
        embed = nn.Sequential(body, nn.Linear(width(body, shape), 512), nn.ReLU())
        return EmbedHead(embed, nn.Sequential(dropout(self.dropout), nn.Linear(512, classes)))


@dataclass(frozen=True, kw_only=True)
class Vgg11(ModelSpec):
    """VGG-11 (Simonyan and Zisserman, 2015), an average pool to 512 features, one linear layer.

    FedAgg's network for CIFAR-100. Published: the average pool and the 512 features before the classifier.
    Guessed: no normalisation, as in the original, and a classifier of one layer.
    """

    norm: str = "none"  # or "batch", "group"

    def __post_init__(self) -> None:
        known = self.norm in ("none", "batch", "group")
        require(known, "train.model.norm", "'none', 'batch' or 'group'", self.norm)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("vgg11", shape, vocabulary, least=32)
        layers: list[nn.Module] = []
        before = shape[0]
        for channels in _VGG11:
            if channels == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            convolution = nn.Conv2d(before, channels, 3, padding=1)
            layers += [convolution, norm(self.norm, channels), nn.ReLU()]
            before = channels
        embed = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        prepare_convolutions(embed)
        return EmbedHead(embed, nn.Linear(512, classes))
