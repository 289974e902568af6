"""Which examples a client sees in which local step: a function of (seed, round, client)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import shuffles, uniforms
from fedtide.core.types import Examples, Ids
from fedtide.data.holdings import Holdings


class Picks(NamedTuple):
    """Examples of every local step of a cohort; entries without mask only fill the shape."""

    places: NDArray[np.int64]  # [U, K, B]
    mask: NDArray[np.bool_]  # [U, K, B]


@dataclass(frozen=True, kw_only=True)
class Batching:
    """Local work per round: `epochs` over the client's data, or `steps` mini-batches.

    Steps come from one shuffled pass ("pass": at most `steps` batches, fewer where the data end) or are
    drawn with replacement ("replacement": always `steps` full batches).
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
        """Steps of one pass over this many examples."""
        return -(-sizes // self.batch_size)

    def available(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many steps clients with this many examples can make; none without examples."""
        if self.epochs:
            return self.epochs * self.per_pass(sizes)
        if self.sampling == "pass":
            return np.minimum(self.per_pass(sizes), self.steps)
        return np.where(sizes > 0, self.steps, 0)

    def places(
        self, sizes: NDArray[np.int64], steps: int, ids: Ids, address: tuple[int, str, int]
    ) -> Picks:
        """For each client and step, places in the client's own store."""
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
        width = min(self.batch_size, int(sizes.max(initial=1)))  # a batch may be all there is
        places = start[..., None] + np.arange(width)  # [U, K, B]
        mask = places < sizes[:, None, None]
        places[~mask] = 0
        orders = [shuffles(seed, purpose, t, e, ids=ids, sizes=sizes) for e in range(passes)]
        rows = np.arange(len(ids))[:, None, None]
        return Picks(np.stack(orders, axis=1)[rows, epoch[..., None], places], mask)


@dataclass(frozen=True, eq=False)
class ClientData:
    """Everything the clients hold, and how they go through it."""

    examples: Examples
    holdings: Holdings
    batching: Batching
    seed: int

    def share(self, ids: Ids) -> ClientData:
        """The data of these clients alone; they keep their numbers."""
        index, holdings = self.holdings.share(ids)
        examples = self.examples if index is None else self.examples.some(torch.from_numpy(index))
        return replace(self, examples=examples, holdings=holdings)

    def steps(self, t: int, ids: Ids) -> NDArray[np.int64]:
        """Local steps each client's data allow."""
        return self.batching.available(self.holdings.sizes(t, ids))

    def everything(self, t: int, ids: Ids) -> Picks:
        """All examples of these clients, [U, N]."""
        sizes = self.holdings.sizes(t, ids)
        places = np.arange(int(sizes.max(initial=1)))
        mask = places < sizes[:, None]
        return Picks(self.holdings.examples(t, ids, np.where(mask, places, 0)), mask)

    def picks(self, t: int, ids: Ids, steps: NDArray[np.int64], purpose: str) -> Picks:
        """The examples of every step of these clients."""
        sizes = self.holdings.sizes(t, ids)
        width = int(steps.max(initial=0))
        local = self.batching.places(sizes, width, ids, (self.seed, purpose, t))
        return Picks(self.holdings.examples(t, ids, local.places), local.mask)
