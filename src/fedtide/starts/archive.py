"""The archive: the final models of earlier sessions, which of them are kept, and where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtide.core.disk import allocate, room_for
from fedtide.core.errors import ConfigError, require
from fedtide.core.kinds import Kinds
from fedtide.core.mix import mixed
from fedtide.core.trees import leaves, size_bytes, tree_map
from fedtide.core.types import Ids, Model, Nothing, Vector

NO_CLIENTS: Ids = np.empty(0, dtype=np.int64)
NONE = torch.empty(0)  # the gradient of a start that computes none


class Past(NamedTuple):
    """A finished session in the archive."""

    session: int
    model: Model  # w^(s, T+1)
    gradient: Vector = NONE  # G_s, if the start computes one
    credit: float = 0.0  # training accuracy in the session's last round, or other credit
    clients: Ids = NO_CLIENTS  # that existed when the session began


Distance = Callable[[Past, Past], float]


class Archive(NamedTuple):
    """The pilot model, and models and gradients of earlier sessions, which later starts use."""

    pilot: Model | Nothing = Nothing()  # w_Pilot
    past: tuple[Past, ...] = ()

    @property
    def floats(self) -> int:
        """The numbers stored: the paper's Z for the pilot model and 2Z for every session."""
        kept = [self.pilot, *((past.model, past.gradient) for past in self.past)]
        return sum(leaf.numel() for leaf in leaves(kept))

    def models(self, like: Model) -> list[Model]:
        """The models of earlier sessions, which must have the shape of this run's model, on its device."""
        shape = [leaf.shape for leaf in leaves(like)]
        for past in self.past:
            if [leaf.shape for leaf in leaves(past.model)] != shape:
                raise ConfigError(
                    f"start: the archive must hold models of this run's shape, {like.x.numel():,} "
                    f"parameters. Got {past.model.x.numel():,} from session {past.session}. "
                    "Start a new archive when the model changes."
                )
        return [tree_map(lambda leaf: leaf.to(like.x.device), past.model) for past in self.past]

    def mixed(self, weights: Tensor, like: Model) -> Model:
        """The weighted sum of the models, which must have the shape of this run's model."""
        return mixed(self.models(like), weights)


@dataclass(frozen=True, kw_only=True)
class Retention(ABC):
    """Which sessions stay in the archive; once it exceeds `memory` megabytes, new ones are on disk."""

    memory: float = 1024.0

    def __post_init__(self) -> None:
        require(self.memory >= 0, "start.keep.memory", "zero or positive", self.memory)

    @abstractmethod
    def chosen(self, past: tuple[Past, ...], distance: Distance) -> tuple[Past, ...]:
        """The sessions of `past` that stay in the archive; the last of them is new."""

    def added(self, past: tuple[Past, ...], new: Past, distance: Distance) -> tuple[Past, ...]:
        """The sessions that stay in the archive when `new` is added."""
        if sum(size_bytes((p.model, p.gradient)) for p in (*past, new)) > self.memory * 2**20:
            new = new._replace(model=tree_map(on_disk, new.model), gradient=on_disk(new.gradient))
        return self.chosen((*past, new), distance)


@dataclass(frozen=True, kw_only=True)
class All(Retention):
    """All sessions stay in the archive: 2Z numbers each."""

    def chosen(self, past: tuple[Past, ...], distance: Distance) -> tuple[Past, ...]:
        return past


@dataclass(frozen=True, kw_only=True)
class Last(Retention):
    """The last H sessions stay in the archive ("limited history" in section V)."""

    H: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.H >= 1, "start.keep.H", "at least 1", self.H)

    def chosen(self, past: tuple[Past, ...], distance: Distance) -> tuple[Past, ...]:
        return past[-self.H :]


@dataclass(frozen=True, kw_only=True)
class Diverse(Last):
    """H diverse sessions stay ("selective retention"): the newest, then always the one farthest from them."""

    def chosen(self, past: tuple[Past, ...], distance: Distance) -> tuple[Past, ...]:
        stays, left = [past[-1]], list(past[:-1])
        while left and len(stays) < self.H:
            gaps = [min(distance(p, s) for s in stays) for p in left]
            stays.append(left.pop(gaps.index(max(gaps))))
        return tuple(sorted(stays, key=lambda p: p.session))


def on_disk(tensor: Tensor) -> Tensor:
    """A copy of the tensor in a mapped temporary file, which is deleted with the tensor."""
    if not tensor.numel():
        return tensor
    with (
        room_for(tensor.nbytes, "start.keep", "a larger start.keep.memory"),
        NamedTemporaryFile(prefix="fedtide-", buffering=0) as file,  # the map outlives the name
    ):
        allocate(file, 0, tensor.nbytes)
        held = torch.from_file(file.name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
    return held.copy_(tensor.reshape(-1)).view(tensor.shape)


RETENTION = Kinds("retention", Retention, {"all": All, "last": Last, "diverse": Diverse})
