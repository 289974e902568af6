"""The networks of OSAFL.

Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the Resource Constraints in Wireless
Networks". The widths of its Figs. 7-8 are not public; they are chosen here so that the payloads are in the
published order, SqueezeNet < CNN < LSTM < FCN, and give the published shares of stragglers. SqueezeNet is
Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters" (2016), in its version 1.1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtide.models.base import (
    EmbedHead,
    ModelSpec,
    Shape,
    check_dropout,
    check_images,
    check_numbers,
    check_tokens,
    check_widths,
    dropout,
    width,
)
from fedtide.models.dense import Mlp
from fedtide.models.text import LastStep


@dataclass(frozen=True, kw_only=True)
class VideoFcn(ModelSpec):
    """Two hidden layers; 3,533,156 parameters on the video task."""

    hidden: tuple[int, ...] = (1024, 256)

    def __post_init__(self) -> None:
        check_widths("hidden", self.hidden)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_numbers("video-fcn", vocabulary)
        return Mlp(hidden=self.hidden).build(shape, classes)


@dataclass(frozen=True, kw_only=True)
class VideoCnn(ModelSpec):
    """Convolutions 32 and 64, each with a pool, and FC 240; 1,026,772 parameters on the video task."""

    hidden: int = 240

    def __post_init__(self) -> None:
        check_widths("hidden", self.hidden)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("video-cnn", shape, vocabulary, least=4)
        body = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        embed = nn.Sequential(body, nn.Linear(width(body, shape), self.hidden), nn.ReLU())
        return EmbedHead(embed, nn.Linear(self.hidden, classes))


class Fire(nn.Module):
    """A 1 x 1 convolution to few channels, then 1 x 1 and 3 x 3 convolutions side by side."""

    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.one = nn.Conv2d(squeeze, expand, 1)
        self.three = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        few = torch.relu(self.squeeze(inputs))
        return torch.relu(torch.cat([self.one(few), self.three(few)], dim=1))


@dataclass(frozen=True, kw_only=True)
class SqueezeNet(ModelSpec):
    """SqueezeNet 1.1; 773,796 parameters with three colours and 100 labels."""

    dropout: float = 0.5  # before the last layer

    def __post_init__(self) -> None:
        check_dropout("dropout", self.dropout)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("squeezenet", shape, vocabulary, least=17)
        pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        embed = nn.Sequential(
            nn.Conv2d(shape[0], 64, 3, stride=2),
            nn.ReLU(),
            pool,
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            pool,
            Fire(128, 32, 128),
            Fire(256, 32, 128),
            pool,
            Fire(256, 48, 192),
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
            nn.Flatten(),
        )
        last = nn.Conv2d(512, classes, 1)
        head = nn.Sequential(
            nn.Unflatten(1, (512, -1, 1)),  # the remaining pixels as one column
            dropout(self.dropout),
            last,
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        for part in embed.modules():  # initialised as by its authors and torchvision
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_uniform_(part.weight)
                nn.init.zeros_(_bias(part))
        nn.init.normal_(last.weight, std=0.01)
        nn.init.zeros_(_bias(last))
        return EmbedHead(embed, head)


@dataclass(frozen=True, kw_only=True)
class VideoLstm(ModelSpec):
    """Three LSTM layers over embedded requests; 1,920,500 parameters on the video task.

    torch.func.vmap has no rule for `nn.LSTM`, so the vectorised engine refuses this model.
    """

    embedding: int = 64
    hidden: int = 300
    layers: int = 3

    def __post_init__(self) -> None:
        check_widths("embedding", self.embedding)
        check_widths("hidden", self.hidden)
        check_widths("layers", self.layers)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_tokens("video-lstm", shape, vocabulary)
        embed = LastStep(vocabulary, self.embedding, self.hidden, self.layers)
        return EmbedHead(embed, nn.Linear(self.hidden, classes))


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias
