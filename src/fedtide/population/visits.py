"""Visits of clients: in which rounds each one exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Visits(NamedTuple):
    """Client `client[v]` exists in the rounds arrive[v] <= t < leave[v]."""

    client: NDArray[np.int64]
    arrive: NDArray[np.int64]
    leave: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Visits:
        """Visits from rows of client, arrive, leave."""
        return cls(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    @classmethod
    def where(cls, there: Mask) -> Visits:
        """The visits of clients that exist as the mask [rounds, clients] says."""
        none = np.zeros((1, there.shape[1]), dtype=bool)
        steps = np.diff(np.concatenate([none, there, none]).astype(np.int8), axis=0).T
        (client, arrive), (_, leave) = np.nonzero(steps == 1), np.nonzero(steps == -1)
        return cls(client, arrive, leave)
