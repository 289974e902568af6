"""The contract of a start: where a session's first model comes from, and when a new one is worth it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.core.types import Model, Session, Vector
from fedtide.starts.archive import NONE, Archive, Past
from fedtide.starts.trigger import Always, Era, Situation, Trigger


class Rehearse(Protocol):
    """Runs rounds of the algorithm that leave no trace with the clients; what they cost is noted."""

    def __call__(self, model: Model, rounds: int, clients: int = 0) -> Model:
        """The model after `rounds` from `model` with the session's clients, or a sample of them."""


class Beginning(NamedTuple):
    """What is known when a session begins."""

    number: int  # of starts before this one
    session: Session
    initial: Model  # the untrained model of this run
    last: Model  # the global model as it stands
    layout: Layout
    archive: Archive
    rehearse: Rehearse


class Begun(NamedTuple):
    """The model a session starts from, and facts about it for the journal."""

    model: Model
    facts: Mapping[str, Any]
    gradient: Vector = NONE  # G_s, where one was computed


@dataclass(frozen=True, kw_only=True)
class Start(ABC):
    """Chooses the model a session begins with.

    The first P sessions are a pilot: they go on from one another and are then forgotten, and the session
    after them begins with the untrained model, in every scheme, as in the code of the DIMC paper. With
    `reset = false` it goes on, as in the paper's text. A trigger decides which changes are answered.
    """

    computes: ClassVar[bool] = False  # does it compute gradients?
    P: int = 0  # pilot sessions
    reset: bool = True
    trigger: Trigger = field(default_factory=Always)

    def __post_init__(self) -> None:
        require(self.P >= 0, "start.P", "zero or positive", self.P)
        require(
            self.computes or not self.trigger.measures,
            "start.trigger",
            "one that needs no gradients, such as 'turnover'",
            "signature",
            "Only start.kind = 'similarity' computes gradients.",
        )

    def is_due(self, t: int, era: Era, known: Beginning) -> bool:
        """Is this round's change answered with a new start? Everything begins with the first client."""
        if not known.number:
            return len(known.session.clients) > 0
        change = Situation(t, era, known.session, lambda clients: self.drift(era, known, clients))
        return self.trigger.is_due(change)

    def drift(self, era: Era, known: Beginning, clients: int) -> float:
        """How far a gradient of so many clients lies from that of the last start; 0 without gradients."""
        return 0.0

    @abstractmethod
    def begin(self, known: Beginning) -> Begun:
        """The first model of the session."""

    def opening(self, known: Beginning) -> Model:
        """Where the pilot sessions and the first one after them begin."""
        is_fresh = known.number == 0 or (known.number == self.P and self.reset)
        return known.initial if is_fresh else known.last

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        """The archive after a session; who needs none keeps none."""
        return archive
