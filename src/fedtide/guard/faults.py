"""Faults of clients and of the way to the server, as part of the simulation."""

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

KINDS = ("crash", "lost_upload", "corrupt", "truncate", "slow")


class Damage(NamedTuple):
    """What became of uploads on their way, by place in the cohort."""

    lost: NDArray[np.bool_]  # [U]
    apart: Mapping[int, Any]  # damaged ones, as they arrive


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Each is the probability that it happens to a client in a round, whatever happens to others.

    A client that crashes never answers and forgets the round. What an upload lost or refused leaves behind
    is a setting: with `memories = "discard"` the client takes back what it learnt for its own memory, as if
    it had waited for a receipt; with "keep" it does not know.
    """

    crash: float = 0.0  # the client dies at work
    lost_upload: float = 0.0  # it did the work, nothing arrives
    corrupt: float = 0.0  # what arrives is not a number in places
    truncate: float = 0.0  # what arrives has the wrong shape
    slow: float = 0.0  # the client takes `slow_factor` times as long
    slow_factor: float = 5.0
    max_norm: float = 0.0  # of an upload; larger ones are refused; 0: any
    memories: Literal["discard", "keep"] = "discard"

    def __post_init__(self) -> None:
        for kind in KINDS:
            chance = getattr(self, kind)
            require(0 <= chance <= 1, f"faults.{kind}", "a probability in [0, 1]", chance)
        require(self.slow_factor >= 1, "faults.slow_factor", "at least 1", self.slow_factor)
        require(self.max_norm >= 0, "faults.max_norm", "positive, or 0 for any", self.max_norm)

    @property
    def is_active(self) -> bool:
        """Does this ask for anything?"""
        return self != Faults()

    def strike(self, plan: Plan, t: int, ids: Ids, seed: int) -> tuple[Plan, dict[str, Any]]:
        """A plan with crashes and delays, and who was hit."""
        if not (self.crash or self.slow):
            return plan, {}
        begun = plan.able
        crashed, slow = (self._hit(name, t, ids, seed) & begun for name in ("crash", "slow"))
        seconds = np.where(slow, plan.seconds * self.slow_factor, plan.seconds)
        late = slow & (seconds > plan.deadline)
        after = plan._replace(seconds=seconds, delivered=plan.delivered & ~crashed & ~late)
        return after, {"crashed": ids[crashed].tolist(), "slow": ids[slow].tolist()}

    def damage(self, up: Any, t: int, ids: Ids, seed: int) -> Damage:
        """What becomes of these uploads on their way to the server."""
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
    """All but the last number."""
    return leaf.reshape(-1)[:-1]


def _spoilt(leaf: Any) -> Any:
    """Every seventh number is none."""
    leaf = leaf.clone()
    leaf.view(-1)[::7] = float("nan")
    return leaf
