"""The contract of a tracker: a tool that follows the runs of a study, chosen by `track` in its file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fedtide.core.errors import needs
from fedtide.record.folder import word


class Tracked(NamedTuple):
    """What a tracker knows about a run."""

    study: str
    label: str
    settings: Mapping[str, Any]
    seed: int
    rounds: int
    folder: Path  # of the run, inside the study's folder

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The settings that differ from those of the study's other runs, in words, and the seed."""
        return {**{key: word(value) for key, value in self.settings.items()}, "seed": self.seed}


class Logbook(ABC):
    """A tracker that is open for one study: it begins, writes and ends runs, many at a time."""

    @abstractmethod
    def begin(self, run: Tracked) -> Any:
        """Begin a run; returns the handle by which `write` and `end` know it."""

    @abstractmethod
    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of round t to the run with this handle."""

    @abstractmethod
    def end(self, page: Any, finished: bool) -> None:
        """End the run with this handle, finished or cut short."""

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """End the study."""


@dataclass(frozen=True, kw_only=True)
class Tracker(ABC):
    """A tool that follows runs; it must be installed when a study names it."""

    packages: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        needs(f"track: {type(self).__name__}", "track", *self.packages)

    @abstractmethod
    def open(self, study: str, source: str, folder: Path) -> Logbook:
        """Open the tool for the study with this name, study file and folder."""
