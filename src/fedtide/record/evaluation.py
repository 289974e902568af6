"""The [evaluation] section of a study."""

from dataclasses import dataclass

from fedtide.core.errors import require
from fedtide.record.probes import PROBES


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When the global model is tested (after the last round always), and what else is noted."""

    every: int = 1
    probes: tuple[str, ...] = ()
    fairness: bool = False  # at the end: whom does the model serve?

    def due(self, t: int, length: int) -> bool:
        """Is the model tested after round t?"""
        return (t + 1) % self.every == 0 or t + 1 == length

    def __post_init__(self) -> None:
        require(self.every >= 1, "evaluation.every", "at least 1", self.every)
        for probe in self.probes:
            require(probe in PROBES, "evaluation.probes", f"some of {sorted(PROBES)}", probe)
