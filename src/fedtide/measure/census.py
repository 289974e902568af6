"""Which clients arrived and left, and which labels clients hold, in few bytes for large populations, too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.types import Ids

RANGES = 500  # of consecutive ids in one text; with more, only the number of clients is kept
SHOWN = 100  # clients whose labels are kept
CLASSES = 200  # with more classes, no labels are kept


def moved(before: Ids, now: Ids) -> tuple[Ids, Ids]:
    """The clients that arrived and those that left between two sessions."""
    both = np.intersect1d(before, now, assume_unique=True)
    came = np.setdiff1d(now, both, assume_unique=True)
    return came, np.setdiff1d(before, both, assume_unique=True)


def counted(ids: Ids) -> dict[str, Any]:
    """`{"clients": 4, "ids": "0-2 7"}` for clients 0, 1, 2 and 7; without ids if the text were too long."""
    ends = _ranges(np.sort(ids))
    if len(ends) > RANGES:
        return {"clients": len(ids)}
    words = [str(a) if a == b else f"{a}-{b}" for a, b in ends.tolist()]
    return {"clients": len(ids), "ids": " ".join(words)}


def named(ids: str) -> Ids:
    """The ids that a text such as "0-2 7" stands for: 0, 1, 2, 7."""
    ends = (word.partition("-") for word in ids.split())
    ranges = [np.arange(int(first), int(last or first) + 1) for first, _, last in ends]
    return np.concatenate(ranges) if ranges else np.arange(0)


def sample(clients: int) -> Ids:
    """The clients whose labels are kept: all, or at most `SHOWN` of them at equal distances."""
    step = -(-clients // SHOWN)
    return np.arange(0, clients, step)


def holdings(ids: Ids, labels: NDArray[np.int64]) -> dict[str, Any]:
    """How many examples of each label these clients hold [clients, classes], for the journal."""
    if labels.shape[1] > CLASSES:
        return {}
    return {"holdings": {"ids": counted(ids).get("ids", ""), "labels": labels.tolist()}}


def _ranges(ids: Ids) -> NDArray[np.int64]:
    """The first and last id of each range of consecutive ids: [ranges, 2]."""
    breaks = np.flatnonzero(np.diff(ids) != 1)
    first = np.concatenate([ids[:1], ids[breaks + 1]])
    last = np.concatenate([ids[breaks], ids[-1:]])
    return np.stack([first, last], 1)
