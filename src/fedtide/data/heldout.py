"""Test examples of single clients: a share of what each holds, or those of its natural owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream
from fedtide.core.types import Dataset, OwnTests
from fedtide.data.holdings import Static
from fedtide.data.mixtures import UNOWNED

Order = Literal["random", "last"]


def held_out(
    dataset: Dataset, given: Static, share: float, order: Order, seed: int
) -> tuple[Dataset, Static]:
    """The dataset with each client's own test examples, and the stores without them.

    Where nothing is held out, the test examples of a client are those of the natural owner of all that it
    holds, if the dataset names owners.
    """
    if not share:
        require(
            len(dataset.test) > 0,
            "data.test_share",
            f"above 0, as {dataset.name!r} has no test examples",
            share,
            "A client's own test examples are then that share of what it holds.",
        )
        return replace(dataset, own=_of_owners(dataset, given)), given
    require(
        dataset.test_keys is None,
        "data.test_share",
        f"0, as {dataset.name!r} says which test examples belong to whom",
        share,
    )
    stays, apart = given.without(share, _turns(dataset, given, order, seed))
    must = "large enough for an example of a client"
    require(len(apart) > 0, "data.test_share", must, share)
    clients = np.full(len(dataset.train), UNOWNED)
    clients[given.order[::-1]] = given.owners[::-1]  # of an example that several hold, the first
    own = OwnTests(dataset.train.some(torch.from_numpy(apart)).as_tests(), clients[apart])
    test = dataset.test if len(dataset.test) else own.examples
    return replace(dataset, own=own, test=test), stays


def _turns(dataset: Dataset, given: Static, order: Order, seed: int) -> NDArray[np.float64]:
    """In which order clients give examples away: at random, or the latest first."""
    if order == "random":
        return stream(seed, "own tests").random(len(given.order))
    times = np.arange(len(dataset.train)) if dataset.times is None else dataset.times
    return -times[given.order].astype(np.float64)


def _of_owners(dataset: Dataset, given: Static) -> OwnTests | None:
    """An owner's test examples belong to the client that alone holds its training examples."""
    if dataset.keys is None or dataset.test_keys is None:
        return None
    owners, clients = np.unique(np.stack([dataset.keys[given.order], given.owners]), axis=1)
    names, first, count = np.unique(owners, return_index=True, return_counts=True)
    names, first = names[count == 1], first[count == 1]
    place = np.searchsorted(names, dataset.test_keys).clip(max=max(len(names) - 1, 0))
    if not len(names) or not (known := names[place] == dataset.test_keys).any():
        return None
    return OwnTests(dataset.test, np.where(known, clients[first][place], UNOWNED))
