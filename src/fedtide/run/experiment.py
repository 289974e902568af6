"""Experiment: the sections of a study, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import get_origin, get_type_hints

from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.errors import require
from fedtide.core.kinds import NO_KINDS, check_is_dataclass, settle
from fedtide.core.types import Session
from fedtide.data.source import Data, Source
from fedtide.engines.kinds import AutoSettings, EngineSettings, RaySettings
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence, PlainMean
from fedtide.guard.faults import Faults
from fedtide.guard.gate import Gate
from fedtide.guard.privacy import Privacy
from fedtide.measure.evaluation import Evaluation
from fedtide.measure.scale import Scale
from fedtide.network.plan import IdealNetwork, Network
from fedtide.population.participation import Full, Participation, Uniform
from fedtide.population.sessions import Fixed, Population
from fedtide.record.checkpoint import Checkpointing
from fedtide.run.kinds import KINDS
from fedtide.starts.base import Start
from fedtide.starts.previous import Previous
from fedtide.starts.similarity import Similarity
from fedtide.tasks.kinds import Classification
from fedtide.tasks.objective import Objective
from fedtide.training.messages import AnyAlgorithm
from fedtide.training.train import Train


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that defines a run; its fields are the sections of a study file.

    A name stands for the kind of that name with its defaults, as in a study file: `algorithm="fedprox"`.
    """

    data: Source = field(default_factory=Data)
    population: Population = field(default_factory=Fixed)
    participation: Participation = field(default_factory=Full)
    network: Network = field(default_factory=IdealNetwork)
    algorithm: AnyAlgorithm = field(default_factory=FedAvg)
    task: Objective = field(default_factory=Classification)
    train: Train = field(default_factory=lambda: Train(epochs=1))
    start: Start = field(default_factory=Previous)
    engine: EngineSettings = field(default_factory=AutoSettings)
    faults: Faults = field(default_factory=Faults)
    attack: Attack = field(default_factory=Attack)
    defence: Defence = field(default_factory=PlainMean)
    privacy: Privacy = field(default_factory=Privacy)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    seed: int = 0

    def __post_init__(self) -> None:
        for section, base in sections().items():
            settle(self, section, section, base, KINDS.get(base, NO_KINDS))
        check_is_dataclass(type(self.algorithm), "algorithm")
        self._check_algorithm()
        if self.population.announced:
            self.participation.check_session(self.population.at(0, self.seed))
            self.gate.check_cohorts(self._cohorts())
        self.gate.check(self.algorithm)
        self._check_start()
        self._check_task()
        require(
            self.evaluation.on == "test" or self.data.validates,
            "evaluation.on",
            "'test' where no examples are set apart for validation",
            self.evaluation.on,
            "Set data.validation, for example to 0.1.",
        )
        start = self.start
        asks = start.computes or start.tests or start.trigger.listens
        listens = asks or self.participation.listens
        require(
            not (self.privacy.noise and listens),
            "privacy.noise",
            "0 with a start or a participation that learns from clients beside their uploads",
            self.privacy.noise,
            "What those learn is not hidden. Use start = 'previous' and participation = 'uniform'.",
        )
        if isinstance(self.engine, RaySettings) and self.engine.adds:
            self._check_sums()

    def _check_task(self) -> None:
        """Does the task have the labels and the accuracy that algorithm and start need?"""
        name, task = type(self.algorithm).__name__, type(self.task).__name__.lower()
        require(
            self.task.has_labels or self.algorithm.needs != "labels",
            "algorithm",
            f"one that works without labels, as the task {task!r} has none",
            name,
            "Use another algorithm, or task.kind = 'classification'.",
        )
        require(
            self.task.has_answers or not self.start.needs_accuracy,
            "start.pilot",
            f"'average', 'ema' or a file: the task {task!r} has no training accuracy",
            "good",
        )

    def _check_start(self) -> None:
        """Settle the trigger "auto"; refuse a pilot that is as long as the whole run."""
        start, population = self.start, self.population
        used = isinstance(start, Similarity) and start.memories == "used"
        require(
            not used or self.train.memories == "keep",
            "start.memories",
            "'aside', unless train.memories = 'keep'",
            "used",
            "Gradient rounds can only change memories that clients keep at starts.",
        )
        trigger = start.trigger.settled(population.as_sessions, not self.privacy.noise)
        if trigger is not start.trigger:
            object.__setattr__(self, "start", replace(start, trigger=trigger))
        if population.announced and population.as_sessions:
            count = len(list(self.sessions()))
            require(
                count < 2 or start.pilots < count,
                "start.P",
                f"less than {count}, the number of sessions of the population",
                start.P,
                "After a pilot of all sessions nothing is left to start.",
            )

    def _check_algorithm(self) -> None:
        """Does the algorithm fit the local training, and are its methods complete?"""
        name = type(self.algorithm).__name__
        require(
            self.algorithm.surveys != "epochs" or self.train.epochs > 0,
            "train.epochs",
            f"at least 1 with {name}, which works in local epochs",
            self.train.epochs,
            "Set train.epochs instead of train.steps.",
        )
        counts = [self.algorithm.has_own(method) for method in ("row", "sent", "changed")]
        require(
            all(counts) or not counts[0],
            "algorithm",
            "one that defines `sent` and `changed`, too, where it defines `row`",
            name,
        )
        require(
            not (self.train.memories == "keep" and counts[0]),
            "train.memories",
            f"'carry' or 'reset' with {name}, whose server keeps a mean of what clients remember",
            self.train.memories,
            "With 'keep' the server begins anew at every start and clients do not.",
        )

    def _cohorts(self) -> Iterator[int]:
        """The sizes of the cohorts of every session that has clients, where they are known beforehand."""
        for session in self.sessions():
            size = self.participation.size(len(session.clients))
            if size is None:
                return
            if size:
                yield size

    def sessions(self) -> Iterator[Session]:
        """All sessions of the run, where they are known beforehand."""
        t = 0
        while t < self.population.length:
            session = self.population.at(t, self.seed)
            yield session
            t = session.first + session.rounds

    def _check_sums(self) -> None:
        """Refuse engine.uploads = "sums" where single uploads are needed."""
        must = "'stacked' with {}, which needs every upload"
        needs = {
            type(self.algorithm).__name__: not self.algorithm.weighs,
            "faults, attack, defence or privacy": self.gate.reads_uploads,
        }
        for what, is_needed in needs.items():
            require(not is_needed, "engine.uploads", must.format(what), "sums")
        probes = [type(probe).__name__.lower() for probe in self.evaluation.probes]
        require(
            not self.evaluation.needs("uploads"),
            "evaluation.probes",
            "without probes that need every upload, such as 'drift', where engine.uploads = 'sums'",
            probes,
        )

    @property
    def gate(self) -> Gate:
        """Faults, attack, defence and privacy, which stand between clients and server."""
        kinds = (self.faults, self.attack, self.defence, self.privacy)
        return Gate(*kinds, self.seed, self.engine.is_real)

    @property
    def scale(self) -> Scale:
        """The score by which models are judged: the first of the task."""
        return Scale.all_of(self.task)[0]

    @property
    def adds(self) -> bool:
        """May the engine return a weighted sum instead of stacked uploads?

        True if no probe, fault, attack, defence or privacy reads single uploads.
        """
        looks = self.gate.reads_uploads or self.evaluation.needs("uploads")
        return self.engine.adds and not looks

    @property
    def is_uniform(self) -> bool:
        """Is every cohort a uniform sample, of a fixed size, of the clients that exist?

        Not for real clients: they have the study file, and with its seed they can compute who is drawn.
        """
        steady = isinstance(self.network, IdealNetwork) and not self.faults.is_active
        return steady and type(self.participation) is Uniform and not self.engine.is_real


@cache
def sections() -> dict[str, type]:
    """The base class of every section of an experiment."""
    hints = get_type_hints(Experiment)
    return {name: get_origin(hint) or hint for name, hint in hints.items() if name != "seed"}
