"""The [engine.flower] table of a study: on which terms a server waits for real clients."""

from dataclasses import dataclass
from typing import Literal

from fedtide.core.errors import require


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Every wait has an end. With `enough` below 1 a cohort is drawn larger than needed (over-selection)."""

    deadline: float = 60.0  # seconds for the replies of a round; later ones are dropped and counted
    enough: float = 1.0  # share of the cohort whose replies end a round
    minimum: int = 1  # replies without which a round changes nothing
    misses: int = 1  # missed deadlines in a row after which a silent client has left
    wait: float = 60.0  # seconds to wait, before a round, for so many clients as are the minimum
    tests: Literal["auto", "server", "clients"] = "auto"  # who tests; auto: the server, if it can

    def __post_init__(self) -> None:
        where = "engine.flower"
        require(self.deadline > 0, f"{where}.deadline", "positive", self.deadline)
        require(0 < self.enough <= 1, f"{where}.enough", "a share in (0, 1]", self.enough)
        require(self.minimum >= 1, f"{where}.minimum", "at least 1", self.minimum)
        require(self.misses >= 1, f"{where}.misses", "at least 1", self.misses)
        require(self.wait >= 0, f"{where}.wait", "zero or positive", self.wait)
