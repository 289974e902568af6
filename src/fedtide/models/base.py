"""The base of all models: `ModelSpec`, the settings in a study file, and `EmbedHead`, the module.

`embed` turns inputs into the features that MOON compares, `head` turns features into logits. A module of your
own that has both, and whose forward is `head(embed(inputs))`, declares it with `is_split = True`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isfunction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedtide.core.errors import ConfigError, require

Shape = tuple[int, ...]  # of one input, without the batch

_OTHER_MODEL = "Choose a model for such data; linear and mlp take numbers of any shape."


class MadeFor(NamedTuple):
    """What a model is built for: the arguments of `ModelSpec.build`."""

    shape: Shape  # of one input; () where inputs have names
    classes: int  # outputs of the model: one for each label, or for each number of a target
    vocabulary: int = 0


class EmbedHead(nn.Module):
    """A model in two halves: `head(embed(inputs))`."""

    is_split = True

    def __init__(self, embed: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.embed = embed
        self.head = head

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(inputs))
        return logits


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ABC):
    """The settings of one kind of model."""

    @classmethod
    def adopt(cls, found: Any, settings: Mapping[str, Any]) -> ModelSpec | None:
        """Make a specification from a user's class of nn.Module or function that makes one; else None."""
        is_module = isinstance(found, type) and issubclass(found, nn.Module)
        made = is_module or isfunction(found)
        return OwnModule(module=found, settings=settings) if made else None

    @abstractmethod
    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        """Make a model with `classes` outputs; its weights are drawn from torch's generator."""


@dataclass(frozen=True, kw_only=True)
class OwnModule(ModelSpec):
    """A user's own class of nn.Module, or function that makes a module; `settings` are its arguments."""

    module: Callable[..., nn.Module]
    settings: Mapping[str, Any]

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        name = getattr(self.module, "__name__", "")
        try:
            made = self.module(**self.settings)
        except TypeError as error:
            raise ConfigError(
                f"train.model must have the arguments of {name}(). Got: {error}. "
                "Give every argument without a default as a setting of train.model."
            ) from error
        must = f"a module that {name}() makes"
        require(isinstance(made, nn.Module), "train.model", must, type(made).__name__)
        return made


def check_numbers(kind: str, vocabulary: int) -> None:
    """Raise a `ConfigError` if the inputs are tokens."""
    require(
        vocabulary == 0,
        f"train.model {kind!r}",
        "given numbers",
        f"tokens of a vocabulary of {vocabulary}",
        "Choose a model for text: char-lstm or fasttext.",
    )


def check_images(kind: str, shape: Shape, vocabulary: int, least: int) -> None:
    """Raise a `ConfigError` unless the inputs are images [C, H, W] of at least `least` x `least`."""
    check_numbers(kind, vocabulary)
    require(
        len(shape) == 3 and min(shape[1:]) >= least,
        f"train.model {kind!r}",
        f"given images [C, H, W] of at least {least} x {least}",
        shape,
        _OTHER_MODEL,
    )


def check_series(kind: str, shape: Shape, vocabulary: int, least: int) -> None:
    """Raise a `ConfigError` unless the inputs are series [C, T] of at least `least` time steps."""
    check_numbers(kind, vocabulary)
    require(
        len(shape) == 2 and shape[1] >= least,
        f"train.model {kind!r}",
        f"given series [C, T] of at least {least} time steps",
        shape,
        _OTHER_MODEL,
    )


def check_tokens(kind: str, shape: Shape, vocabulary: int) -> None:
    """Raise a `ConfigError` unless the inputs are sequences of tokens [T]."""
    require(
        vocabulary > 0 and len(shape) == 1,
        f"train.model {kind!r}",
        "given tokens [T] of a known vocabulary",
        f"shape {shape} with a vocabulary of {vocabulary}",
        _OTHER_MODEL,
    )


def check_widths(setting: str, widths: int | tuple[int, ...]) -> None:
    """Raise a `ConfigError` unless there is at least one layer, and each has at least one unit."""
    if isinstance(widths, int):
        require(widths > 0, f"train.model.{setting}", "positive", widths)
    else:
        holds = min(widths, default=0) > 0
        require(holds, f"train.model.{setting}", "one or more positive numbers", widths)


def check_dropout(setting: str, probability: float) -> None:
    """Raise a `ConfigError` unless the probability lies in [0, 1)."""
    require(0 <= probability < 1, f"train.model.{setting}", "in [0, 1)", probability)


def dropout(probability: float) -> nn.Module:
    """Dropout, or no layer for probability 0: under vmap even `nn.Dropout(0)` needs random numbers."""
    return nn.Dropout(probability) if probability else nn.Identity()


def norm(kind: str, channels: int) -> nn.Module:
    """A normalisation layer for images; GroupNorm has 32 groups as in Wu and He (2018)."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(32, channels) if kind == "group" else nn.Identity()


def prepare_convolutions(module: nn.Module) -> None:
    """Initialise as He et al. (2015); with torch's default, outputs of deep networks start near zero."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def width(body: nn.Module, shape: Shape) -> int:
    """The number of features that `body` makes of one input, found by a forward pass."""
    body.eval()  # BatchNorm's statistics and the random generator must not change
    with torch.no_grad():
        features: Tensor = body(torch.zeros(1, *shape))
    body.train()
    return features.numel()
