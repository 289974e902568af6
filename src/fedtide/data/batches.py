"""The examples of each client's local steps: a function of seed, round and client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import bits, shuffles, uniforms
from fedtide.core.types import NO_LUCK, Examples, Ids, Luck
from fedtide.data.holdings import Holdings


class Picks(NamedTuple):
    """The examples of every local step of a cohort; entries with mask False are padding."""

    places: NDArray[np.int64]  # [U, K, B]: positions in the training examples
    mask: NDArray[np.bool_]  # [U, K, B]
    luck: Luck = NO_LUCK  # [U, K, B]: a random number for each, where inputs are random


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How much a client trains per round: `epochs` over its data, or `steps` mini-batches.

    Batches come from one shuffled pass over the data (sampling "pass": at most `steps` batches, fewer if the
    data end before) or are drawn with replacement ("replacement": always `steps` full batches).
    """

    batch_size: int = 32
    steps: int = 0
    epochs: int = 0
    sampling: Literal["pass", "replacement"] = "pass"

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "train.batch_size", "at least 1", self.batch_size)
        require(self.steps >= 0, "train.steps", "at least 1", self.steps)
        require(self.epochs >= 0, "train.epochs", "at least 1", self.epochs)
        if bool(self.steps) == bool(self.epochs):
            raise ConfigError(
                "train must say how much a client does per round: either steps or epochs. "
                f"Got steps = {self.steps}, epochs = {self.epochs}. Set one of them."
            )
        if self.epochs and self.sampling == "replacement":
            raise ConfigError(
                "train.sampling must be 'pass' where epochs are counted. Got 'replacement'. "
                "Set train.steps instead of train.epochs."
            )

    def per_pass(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of steps in one pass over this many examples."""
        return -(-sizes // self.batch_size)

    def available(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of steps of clients with this many examples; 0 without examples."""
        if self.epochs:
            return self.epochs * self.per_pass(sizes)
        if self.sampling == "pass":
            return np.minimum(self.per_pass(sizes), self.steps)
        return np.where(sizes > 0, self.steps, 0)

    def places(
        self, sizes: NDArray[np.int64], steps: int, ids: Ids, address: tuple[int, str, int]
    ) -> Picks:
        """The batches of each client and step, as positions in the client's own store.

        `address` is the seed, the purpose and the round of the random numbers.
        """
        seed, purpose, t = address
        if self.sampling == "replacement":
            shape = (len(ids), steps, self.batch_size)
            draws = uniforms(seed, purpose, t, ids=ids, count=steps * self.batch_size)
            places = (draws * sizes[:, None]).astype(np.int64).reshape(shape)
            return Picks(places, np.ones(shape, dtype=bool))
        per_pass = np.maximum(self.per_pass(sizes), 1)[:, None]
        passes = self.epochs or 1
        step = np.arange(steps)
        epoch = np.minimum(step // per_pass, passes - 1)  # [U, K]
        start = step % per_pass * self.batch_size
        width = min(self.batch_size, int(sizes.max(initial=1)))  # no wider than the largest store
        places = start[..., None] + np.arange(width)  # [U, K, B]
        mask = places < sizes[:, None, None]
        places[~mask] = 0
        orders = [shuffles(seed, purpose, t, e, ids=ids, sizes=sizes) for e in range(passes)]
        rows = np.arange(len(ids))[:, None, None]
        return Picks(np.stack(orders, axis=1)[rows, epoch[..., None], places], mask)


@dataclass(frozen=True, eq=False)
class ClientData:
    """The examples of all clients, who holds which, and how clients draw batches from them."""

    examples: Examples
    holdings: Holdings
    batching: Batching
    seed: int

    def share(self, ids: Ids) -> ClientData:
        """The data of these clients only; clients keep their ids."""
        index, holdings = self.holdings.share(ids)
        examples = self.examples if index is None else self.examples.some(torch.from_numpy(index))
        return replace(self, examples=examples, holdings=holdings)

    def steps(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """The number of local steps that each client's data allow."""
        return self.batching.available(self.holdings.sizes(t, ids))

    def everything(self, t: int, ids: Ids) -> Picks:
        """All examples that these clients hold in round t, [U, N]."""
        sizes = self.holdings.sizes(t, ids)
        places = np.arange(int(sizes.max(initial=1)))
        mask = places < sizes[:, None]
        return Picks(self.holdings.examples(t, ids, np.where(mask, places, 0)), mask)

    def picks(self, t: int, ids: Ids, steps: NDArray[np.int64], purpose: str) -> Picks:
        """The examples of every local step of these clients; `purpose` is part of the random address."""
        sizes = self.holdings.sizes(t, ids)
        width = int(steps.max(initial=0))
        local = self.batching.places(sizes, width, ids, (self.seed, purpose, t))
        luck = (
            self._luck(local.places.shape, purpose, t, ids) if self.examples.is_random else NO_LUCK
        )
        return Picks(self.holdings.examples(t, ids, local.places), local.mask, luck)

    def _luck(self, shape: tuple[int, ...], purpose: str, t: int, ids: Ids) -> NDArray[np.int64]:
        """A random number for each example of [U, K, B]; that of a client does not depend on the others."""
        clients, steps, width = shape
        most = self.batching.batch_size
        address = (self.seed, "augmentation", purpose, t)
        words = bits(*address, ids=ids, count=steps * most).reshape(clients, steps, most)
        return (words[..., :width] >> np.uint64(1)).astype(np.int64)
