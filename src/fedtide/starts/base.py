"""The contract of a start: where a session's first model comes from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedtide.core.types import Model, Session
from fedtide.starts.archive import Archive


class Beginning(NamedTuple):
    """What is known when a session begins."""

    session: Session
    initial: Model  # the untrained model of this run
    archive: Archive  # the last model of every session so far


class Begun(NamedTuple):
    """The model a session starts from, and facts about it for the journal."""

    model: Model
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Start(ABC):
    """Chooses the model a session begins with."""

    @abstractmethod
    def begin(self, known: Beginning) -> Begun:
        """The first model of the session."""
