"""Simulated faults of clients, and of their uploads on the way to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import uniforms
from fedtide.core.trees import rows, tree_map
from fedtide.core.types import Ids, Plan

PROBABILITIES = ("crash", "lost_upload", "corrupt", "truncate", "slow")


class Damage(NamedTuple):
    """What happened to the uploads of a cohort on their way to the server."""

    lost: NDArray[np.bool_]  # [U]
    apart: Mapping[int, Any]  # damaged uploads as they arrive, by their place in the cohort


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Probabilities that a fault happens to a client in a round, independently of other clients.

    A client that crashes does not reply and remembers nothing of the round. `memories` says what a client
    remembers of a round whose upload was lost or refused: with "discard" nothing, as if it had waited for the
    server's confirmation; with "keep" everything, because it does not know.
    """

    crash: float = 0.0  # the client stops during training
    lost_upload: float = 0.0  # the client trains, but its upload does not arrive
    corrupt: float = 0.0  # some numbers of the upload arrive as NaN
    truncate: float = 0.0  # the upload arrives with the wrong shape
    slow: float = 0.0  # the client takes `slow_factor` times as long
    slow_factor: float = 5.0
    max_norm: float = 0.0  # the server refuses uploads with a larger norm; 0: none
    memories: Literal["discard", "keep"] = "discard"

    def __post_init__(self) -> None:
        for name in PROBABILITIES:
            chance = getattr(self, name)
            require(0 <= chance <= 1, f"faults.{name}", "a probability in [0, 1]", chance)
        require(self.slow_factor >= 1, "faults.slow_factor", "at least 1", self.slow_factor)
        require(self.max_norm >= 0, "faults.max_norm", "positive, or 0 for any", self.max_norm)

    @property
    def is_active(self) -> bool:
        """Is any fault possible?"""
        return self != Faults()

    def strike(self, plan: Plan, t: int, ids: Ids, seed: int) -> tuple[Plan, dict[str, Any]]:
        """The plan after crashes and delays, and the clients they happened to."""
        if not (self.crash or self.slow):
            return plan, {}
        begun = plan.able
        crashed, slow = (self._hit(name, t, ids, seed) & begun for name in ("crash", "slow"))
        seconds = np.where(slow, plan.seconds * self.slow_factor, plan.seconds)
        late = slow & (seconds > plan.deadline)
        after = plan._replace(seconds=seconds, delivered=plan.delivered & ~crashed & ~late)
        return after, {"crashed": ids[crashed].tolist(), "slow": ids[slow].tolist()}

    def damage(self, up: Any, t: int, ids: Ids, seed: int) -> Damage:
        """Draw which of these uploads are lost or damaged on their way to the server."""
        lost, corrupt, short = (
            self._hit(name, t, ids, seed) for name in ("lost_upload", "corrupt", "truncate")
        )
        apart = {}
        for place in np.flatnonzero((corrupt | short) & ~lost).tolist():
            mine = rows(up, place)
            apart[place] = tree_map(_cut if short[place] else _spoilt, mine)
        return Damage(lost, apart)

    def _hit(self, name: str, t: int, ids: Ids, seed: int) -> NDArray[np.bool_]:
        draws = uniforms(seed, "fault", name, t, ids=ids, count=1)[:, 0]
        return np.asarray(draws < getattr(self, name))


def _cut(leaf: Any) -> Any:
    """A leaf of the upload without its last number."""
    return leaf.reshape(-1)[:-1]


def _spoilt(leaf: Any) -> Any:
    """A leaf of the upload with NaN for every seventh number."""
    leaf = leaf.clone()
    leaf.view(-1)[::7] = float("nan")
    return leaf
