"""Who came, who left, and what clients hold: facts about a population that stay small when it is large."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtide.core.types import Ids

RANGES = 500  # of client numbers in one list; above, only how many clients it has is kept
SHOWN = 100  # clients whose labels are kept
CLASSES = 200  # with more labels than this, none are kept


def moves(before: Ids, now: Ids) -> dict[str, Any]:
    """Who arrived and who left between two sessions, for the journal."""
    both = np.intersect1d(before, now, assume_unique=True)
    came = np.setdiff1d(now, both, assume_unique=True)
    gone = np.setdiff1d(before, both, assume_unique=True)
    return {"arrived": counted(came), "left": counted(gone)}


def counted(ids: Ids) -> dict[str, Any]:
    """How many clients, and which: `{"clients": 4, "ids": "0-2 7"}`, without ids if that is too long."""
    ends = _ranges(np.sort(ids))
    if len(ends) > RANGES:
        return {"clients": len(ids)}
    words = [str(a) if a == b else f"{a}-{b}" for a, b in ends.tolist()]
    return {"clients": len(ids), "ids": " ".join(words)}


def named(ids: str) -> Ids:
    """The clients of `0-2 7`: 0, 1, 2, 7."""
    ends = (word.partition("-") for word in ids.split())
    ranges = [np.arange(int(first), int(last or first) + 1) for first, _, last in ends]
    return np.concatenate(ranges) if ranges else np.arange(0)


def sample(clients: int) -> Ids:
    """All clients, or so many of a large population, evenly spaced, that their labels can be kept."""
    step = -(-clients // SHOWN)
    return np.arange(0, clients, step)


def holdings(ids: Ids, labels: NDArray[np.int64]) -> dict[str, Any]:
    """What these clients hold, for the journal: examples of each label [clients, classes]."""
    if labels.shape[1] > CLASSES:
        return {}
    return {"holdings": {"ids": counted(ids).get("ids", ""), "labels": labels.tolist()}}


def _ranges(ids: Ids) -> NDArray[np.int64]:
    """First and last of each stretch of consecutive numbers: [stretches, 2]."""
    breaks = np.flatnonzero(np.diff(ids) != 1)
    first = np.concatenate([ids[:1], ids[breaks + 1]])
    last = np.concatenate([ids[breaks], ids[-1:]])
    return np.stack([first, last], 1)
