"""The base of starts: which model a session begins with, and which changes of the population need a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from fedtide.core.errors import require
from fedtide.core.layout import Layout
from fedtide.core.types import Ids, Model, Session, Tested, Vector
from fedtide.starts.archive import NONE, Archive, Past
from fedtide.starts.newcomers import AutoTrigger
from fedtide.starts.trigger import Era, Situation, Trigger


class RunGradientRounds(Protocol):
    """Runs rounds of the algorithm before a session; their costs are counted."""

    def __call__(
        self, model: Model, rounds: int, clients: int = 0, half: int = 0, memories: bool = False
    ) -> Model:
        """The model after `rounds` rounds from `model`, with `clients` of the session (0: all of them).

        With `half` 1 or 2, only the first or second half of these clients takes part; halves are random.
        With `memories` these rounds use and change what clients remember, else they begin with blank
        memories and leave no trace in them.
        """


class AskForLosses(Protocol):
    """Lets clients test models on the examples that they train on; what that costs is counted."""

    def __call__(
        self, models: Sequence[Model], mixes: Tensor, clients: int = 0, ids: Ids | None = None
    ) -> Tested:
        """The losses at weighted sums of the models, `mixes` [m, k], of the clients that answered.

        Asks `clients` of the session (0: all of them), or exactly `ids`. Clients that have just tested sums
        of the same sequence of models still hold them and receive only the new weights.
        """


class Beginning(NamedTuple):
    """What a start knows when a session begins."""

    number: int  # the number of starts before this one
    session: Session
    initial: Model  # the untrained model of this run
    last: Model  # the current global model
    layout: Layout
    archive: Archive
    gradient_rounds: RunGradientRounds
    losses: AskForLosses
    counts_examples: bool = True  # does the algorithm weigh clients by examples, or equally?


class Begun(NamedTuple):
    """The model that a session begins with, and facts about it for the journal."""

    model: Model
    facts: Mapping[str, Any]
    gradient: Vector = NONE  # G_s, if one was computed


@dataclass(frozen=True, kw_only=True)
class Start(ABC):
    """Chooses the model that a session begins with.

    The first P sessions are a pilot: each continues with the model of the one before, and none of them enters
    the archive. So does the session after them, as in the text of the DIMC paper. With `reset = true` that
    session begins with the untrained model, in every kind of start, as in the paper's code. A trigger decides
    which changes of the population lead to a new start. A run with an `archive` goes on where the earlier run
    ended: it begins with a start among that run's models.
    """

    computes: ClassVar[bool] = False  # does this start compute gradients?
    tests: ClassVar[bool] = False  # do clients test models for this start?
    archives: ClassVar[bool] = False  # does it use the models of earlier sessions?
    P: int = 1  # the number of pilot sessions
    reset: bool = False  # does the session after them begin with the untrained model?
    archive: str = ""  # a folder with models of an earlier run, from which this one goes on
    trigger: Trigger = field(default_factory=AutoTrigger)

    def __post_init__(self) -> None:
        require(self.P >= 0, "start.P", "zero or positive", self.P)
        require(
            self.computes or not self.trigger.measures,
            "start.trigger",
            "one that needs no gradients, such as 'turnover'",
            "signature",
            "Only start.kind = 'similarity' computes gradients.",
        )

    @property
    def needs_accuracy(self) -> bool:
        """Does it compare training accuracies, which only tasks with right and wrong answers have?"""
        return False

    @property
    def pilots(self) -> int:
        """The number of sessions before this start makes any difference."""
        return self.P if self.archives or self.reset else 0

    def decide(self, t: int, era: Era, known: Beginning) -> tuple[str, Era]:
        """Why round t begins with a new start, in words, or nothing if it does not.

        The first start comes with the first client. Also returns the rounds since the last start, with what
        the trigger has learnt.
        """
        if not len(known.session.clients):
            return "", era
        if known.number == 0 or era.is_earlier:
            return (
                "the run goes on from an archive" if era.is_earlier else "the first clients came",
                era,
            )
        change = Situation(
            t,
            era,
            known.session,
            drift=lambda clients: self.drift(era, known, clients),
            losses=lambda clients: known.losses([known.last], torch.ones(1, 1), clients),
        )
        era = era._replace(watch=self.trigger.watch(change))
        change = change._replace(era=era)
        return self.trigger.reason(change) if self.trigger.is_due(change) else "", era

    def drift(self, era: Era, known: Beginning, clients: int) -> float:
        """By how much clients' gradient agrees less with the last start's than chance explains; else 0."""
        return 0.0

    @abstractmethod
    def begin(self, known: Beginning) -> Begun:
        """The model that the session begins with."""

    def opening(self, known: Beginning) -> Model:
        """The model that the pilot sessions and the first one after them begin with."""
        is_fresh = known.number == 0 or (known.number == self.P and self.reset)
        return known.initial if is_fresh else known.last

    def store(self, archive: Archive, past: Past, layout: Layout) -> Archive:
        """The archive after a session; by default nothing is added."""
        return archive
