"""Residual networks with a projection.

He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), with the projection of Li et
al., "Model-Contrastive Federated Learning" (CVPR 2021), as used by Chang et al.,
"Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure": resnet18 on
CIFAR, resnet34 on Tiny ImageNet, both pretrained on ImageNet. Those weights are not part of this package:
`weights` is a safetensors file that contains them under their names in timm and torchvision.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedtide.core.errors import ConfigError, require
from fedtide.models.base import (
    EmbedHead,
    ModelSpec,
    Shape,
    check_images,
    norm,
    prepare_convolutions,
)


class Block(nn.Module):
    """Two convolutions with a shortcut; parameters are named as in timm and torchvision."""

    def __init__(self, before: int, channels: int, stride: int, norm_kind: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.bn1 = norm(norm_kind, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = norm(norm_kind, channels)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or before != channels:
            shortcut = nn.Conv2d(before, channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, norm(norm_kind, channels))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = torch.relu(self.bn1(self.conv1(inputs)))
        outputs = self.bn2(self.conv2(outputs))
        return torch.relu(outputs + self.downsample(inputs))


class Backbone(nn.Module):
    """From images to 512 features, with ImageNet's stem; named as in timm and torchvision."""

    def __init__(self, channels: int, blocks: tuple[int, ...], norm_kind: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(norm_kind, 64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], 1, norm_kind)
        self.layer2 = _stage(64, 128, blocks[1], 2, norm_kind)
        self.layer3 = _stage(128, 256, blocks[2], 2, norm_kind)
        self.layer4 = _stage(256, 512, blocks[3], 2, norm_kind)
        prepare_convolutions(self)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.maxpool(torch.relu(self.bn1(self.conv1(inputs))))
        outputs = self.layer4(self.layer3(self.layer2(self.layer1(outputs))))
        return outputs.mean((2, 3))


@dataclass(frozen=True, kw_only=True)
class ResNet18(ModelSpec):
    """ResNet-18; 11,573,066 parameters for 10 classes, 11,596,196 for 100.

    The features for MOON are the projection to 256. Images up to 32 x 32 end in one pixel, so that training
    with BatchNorm needs batches of at least two examples.
    """

    norm: str = "batch"  # or "group"
    weights: str = ""  # a safetensors file for the backbone; "": start from random numbers

    def __post_init__(self) -> None:
        _check_norm(self.norm)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("resnet18", shape, vocabulary, least=8)
        backbone = Backbone(shape[0], (2, 2, 2, 2), self.norm)
        return _projected(backbone, "resnet18", self.weights, classes)


@dataclass(frozen=True, kw_only=True)
class ResNet34(ModelSpec):
    """ResNet-34, otherwise like `ResNet18`; 21,730,056 parameters for 200 classes."""

    norm: str = "batch"  # or "group"
    weights: str = ""  # a safetensors file for the backbone; "": start from random numbers

    def __post_init__(self) -> None:
        _check_norm(self.norm)

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_images("resnet34", shape, vocabulary, least=8)
        backbone = Backbone(shape[0], (3, 4, 6, 3), self.norm)
        return _projected(backbone, "resnet34", self.weights, classes)


def _check_norm(kind: str) -> None:
    require(kind in ("batch", "group"), "train.model.norm", "'batch' or 'group'", kind)


def _stage(before: int, channels: int, blocks: int, stride: int, norm_kind: str) -> nn.Sequential:
    first = Block(before, channels, stride, norm_kind)
    return nn.Sequential(
        first, *(Block(channels, channels, 1, norm_kind) for _ in range(1, blocks))
    )


def _projected(backbone: Backbone, kind: str, weights: str, classes: int) -> nn.Module:
    if weights:
        _load(backbone, kind, weights)
    projection = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256))
    embed = nn.Sequential(OrderedDict(backbone=backbone, projection=projection))
    return EmbedHead(embed, nn.Linear(256, classes))


def _load(backbone: Backbone, kind: str, weights: str) -> None:
    """Load the backbone's weights from a file; the file's classifier `fc` is ignored."""
    try:
        stored = load_file(Path(weights).expanduser())
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"train.model.weights must be a safetensors file. Got {weights!r}: {error}. "
            f"Save the state dict of timm's or torchvision's {kind} with safetensors."
        ) from error
    stored = {name: tensor for name, tensor in stored.items() if not name.startswith("fc.")}
    wanted = backbone.state_dict()
    for name in wanted.keys() - stored.keys():
        if name.endswith("num_batches_tracked"):  # older files lack this counter, which is not used
            stored[name] = wanted[name]
    misfits = sorted(
        name
        for name in wanted.keys() | stored.keys()
        if name not in wanted or name not in stored or wanted[name].shape != stored[name].shape
    )
    require(
        not misfits,
        "train.model.weights",
        f"the weights of a {kind} for these images and this norm",
        weights,
        f"{len(misfits)} tensors do not fit, the first is {(misfits or [''])[0]!r}.",
    )
    backbone.load_state_dict(stored)
