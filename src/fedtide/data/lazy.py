"""Examples of a torch dataset that are read when a batch needs them, and transformed anew each time.

A dataset may draw random numbers in its transforms, from torch, numpy or `random`: the three are seeded for
each example by the address of the batch that it is read for. So no two epochs see the same augmentation, and
a resumed run sees what an uninterrupted one would have seen, on any engine.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import DataError
from fedtide.core.rng import key
from fedtide.core.trees import leaves, size_bytes, stack, tree_map
from fedtide.core.types import NO_LUCK, Examples, Inputs, Luck, Nothing

Augment = Callable[[Any], Any]

MEGABYTE = 1 << 20
LOOKED_AT = 16  # items of a lazy dataset whose content its checksum covers
_READING = threading.Lock()  # seeds are those of the whole process


class Items:
    """The items of a torch dataset; a bounded number of megabytes of them stays in memory."""

    def __init__(self, dataset: Any, where: str, cache_mb: int = 0) -> None:
        self.dataset, self.where, self.cache_mb = dataset, where, cache_mb
        self._kept: OrderedDict[int, Inputs] = OrderedDict()
        self._bytes = 0

    def __getstate__(self) -> tuple[Any, str, int]:
        """Another process reads the items itself."""
        return self.dataset, self.where, self.cache_mb

    def __setstate__(self, state: tuple[Any, str, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def read(self, place: int) -> tuple[Inputs, Tensor]:
        """Input and target of one item, as tensors."""
        item = self.dataset[place]
        if not isinstance(item, tuple | list) or len(item) != 2:
            got = type(item).__name__
            raise DataError(f"{self.where}: item {place} must be (input, target). Got {got}.")
        named = item[0] if isinstance(item[0], Mapping) else {"": item[0]}
        wrong = [part for part in named.values() if not isinstance(part, Tensor | np.ndarray)]
        if wrong:
            raise DataError(
                f"{self.where}: the input of item {place} must be a tensor. Got {type(wrong[0]).__name__}. "
                "Give the dataset a transform that makes tensors, such as ToTensor()."
            )
        tensors = {str(name): torch.as_tensor(part) for name, part in named.items()}
        return tensors.get("", tensors), torch.as_tensor(item[1])

    def input(self, place: int, seed: int) -> Inputs:
        """The input of one item, from memory if it is kept there, else read with this seed."""
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        seed_all(key(0, "item", place) & (2**63 - 1) if self.cache_mb else seed)
        found = self.read(place)[0]
        if self.cache_mb:
            self._keep(place, found)
        return found

    def _keep(self, place: int, found: Inputs) -> None:
        self._kept[place] = found
        self._bytes += size_bytes(found)
        while self._bytes > self.cache_mb * MEGABYTE and self._kept:
            self._bytes -= size_bytes(self._kept.popitem(last=False)[1])


@dataclass(frozen=True, eq=False)
class LazyExamples(Examples):
    """Examples that are read when they are taken; `inputs` has their shape and no content."""

    items: Items = field(kw_only=True)
    places: NDArray[np.int64] = field(kw_only=True)  # of each example among the items
    augment: Augment | None = field(default=None, kw_only=True)
    is_training: bool = field(default=True, kw_only=True)  # else every reading gives the same

    @property
    def tensor(self) -> None:
        return None

    @property
    def stored(self) -> dict[str, Any]:
        return {"targets": self.targets}

    @property
    def is_random(self) -> bool:
        return self.is_training

    def inputs_at(self, index: Tensor, luck: Luck = NO_LUCK) -> Inputs:
        places = self.places[index.cpu().numpy()].reshape(-1)
        # Without an address, as in a test, an example is always read with the same seed.
        seeds = places if isinstance(luck, Nothing) else luck.reshape(-1)
        with _READING, undisturbed():
            read = [self._one(*each) for each in zip(places.tolist(), seeds.tolist(), strict=True)]
        self._check(read, places)
        inputs = self.ready(tree_map(self._arrived, stack(read)))
        shaped: Inputs = tree_map(lambda leaf: leaf.view(*index.shape, *leaf.shape[1:]), inputs)
        return shaped

    def _arrived(self, leaf: Tensor) -> Tensor:
        """What was read, on the device; numpy's usual float64 as torch's usual float32."""
        kind = torch.get_default_dtype() if leaf.is_floating_point() else leaf.dtype
        return leaf.to(self.device, kind)

    def _one(self, place: int, seed: int) -> Inputs:
        found = self.items.input(place, seed)
        if self.augment is None or not self.is_training:
            return found
        seed_all(seed)
        augmented: Inputs = tree_map(torch.as_tensor, self.augment(found))
        return augmented

    def _check(self, read: Sequence[Inputs], places: NDArray[np.int64]) -> None:
        """Raise a `DataError` if an example has another shape than the first one of the dataset."""
        wanted = [list(leaf.shape[1:]) for leaf in leaves(self.inputs)]
        for place, found in zip(places.tolist(), read, strict=True):
            got = [list(leaf.shape) for leaf in leaves(found)]
            if got != wanted:
                raise DataError(
                    f"{self.items.where}: all inputs must have one shape. Got {got[0]} at item {place}, "
                    f"{wanted[0]} before. Let the transform resize or pad them."
                )

    def between(self, first: int, last: int) -> tuple[Inputs, Tensor]:
        return self.take(torch.arange(first, min(last, len(self))))

    def some(self, index: Tensor) -> Examples:
        here = index.to(self.device)
        inputs = tree_map(lambda leaf: leaf[:1].expand(len(index), *leaf.shape[1:]), self.inputs)
        places = self.places[index.cpu().numpy()]
        return replace(self, inputs=inputs, targets=self.targets[here], places=places)

    def to(self, device: torch.device) -> Examples:
        return replace(self, targets=self.targets.to(device))

    def prepared(self, most_bytes: int) -> Examples:
        return self

    def as_tests(self) -> Examples:
        return replace(self, is_training=False)

    def checked(self) -> Iterator[Tensor]:
        for place in np.linspace(0, len(self) - 1, LOOKED_AT).astype(int).tolist():
            yield from leaves(self.between(place, place + 1)[0])


def lazy_examples(
    dataset: Any,
    where: str,
    augment: Augment | None = None,
    cache_mb: int = 0,
    is_training: bool = True,
) -> LazyExamples:
    """The examples of a torch dataset; its targets are read now, its inputs when they are needed."""
    if not hasattr(dataset, "__len__") or not len(dataset):
        got = type(dataset).__name__ + (" without items" if hasattr(dataset, "__len__") else "")
        raise DataError(f"{where}: the dataset must have a length. Got {got}.")
    items, count = Items(dataset, where, cache_mb), len(dataset)
    known = next(
        (getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None
    )
    with _READING, undisturbed():
        seed_all(0)
        sample = items.read(0)[0]
        if augment is not None and is_training:
            sample = tree_map(torch.as_tensor, augment(sample))
        if known is None or len(known) != count:
            known = torch.stack([items.read(place)[1] for place in range(count)])
    inputs = tree_map(lambda leaf: leaf.to("meta")[None].expand(count, *leaf.shape), sample)
    return LazyExamples(
        inputs,
        torch.as_tensor(known),
        items=items,
        places=np.arange(count),
        augment=augment,
        is_training=is_training,
    )


def seed_all(seed: int) -> None:
    """Seed the generators that transforms draw from."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 (transforms of others use it)
    random.seed(seed)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Leave the generators of torch, numpy and `random` as they were."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
