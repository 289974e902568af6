"""Experiment: the sections of a study, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, get_origin, get_type_hints

import torch

from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.errors import require
from fedtide.core.kinds import NO_KINDS, settle
from fedtide.core.types import Walk
from fedtide.data.source import Data, Source
from fedtide.engines.kinds import EngineChoice
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence, PlainMean
from fedtide.guard.faults import Faults
from fedtide.guard.gate import Gate
from fedtide.guard.privacy import Privacy
from fedtide.measure.evaluation import Evaluation
from fedtide.network.plan import IdealNetwork, Network
from fedtide.population.participation import Full, Participation, Uniform
from fedtide.population.sessions import Fixed, Population
from fedtide.record.checkpoint import Checkpointing
from fedtide.run.kinds import KINDS
from fedtide.starts.base import Start
from fedtide.starts.previous import Previous
from fedtide.training.client import AnyAlgorithm
from fedtide.training.train import Train

if TYPE_CHECKING:
    pass


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
    train: Train = field(default_factory=lambda: Train(epochs=1))
    start: Start = field(default_factory=Previous)
    engine: EngineChoice = field(default_factory=EngineChoice)
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
        paced = self.algorithm.surveys == "epochs"
        require(
            not paced or self.train.epochs > 0,
            "train.epochs",
            f"at least 1 with {type(self.algorithm).__name__}, which works in local epochs",
            self.train.epochs,
            "Set train.epochs instead of train.steps.",
        )
        counts = [self.algorithm.has_own(name) for name in ("row", "sent", "changed")]
        require(
            all(counts) or not counts[0],
            "algorithm",
            "one that defines `sent` and `changed`, too, where it defines `row`",
            type(self.algorithm).__name__,
        )
        kept = self.train.memories == "keep"
        require(
            not (kept and self.algorithm.has_own("row")),
            "train.memories",
            f"'carry' or 'reset' with {type(self.algorithm).__name__}, whose server keeps a mean of what "
            "clients remember",
            self.train.memories,
            "With 'keep' the server begins anew at every start and clients do not.",
        )
        if self.population.announced:
            self.participation.check_session(self.population.at(0, self.seed))
            self.gate.check_cohorts(self._cohorts())
        self.gate.check(self.algorithm)
        listens = self.start.computes or self.start.trigger.listens or self.participation.listens
        require(
            not (self.privacy.noise and listens),
            "privacy.noise",
            "0 with a start or a participation that learns from clients beside their uploads",
            self.privacy.noise,
            "What those learn is not hidden. Use start = 'previous' and participation = 'uniform'.",
        )
        if self.engine.uploads == "sums":
            self._check_sums()

    def _cohorts(self) -> Iterator[int]:
        """The sizes of the cohorts of every session that has clients, where they are known beforehand."""
        t = 0
        while t < self.population.length:
            session = self.population.at(t, self.seed)
            size = self.participation.size(len(session.clients))
            if size is None:
                return
            if size:
                yield size
            t = session.first + session.rounds

    def _check_sums(self) -> None:
        one = torch.ones(1)
        require(
            self.algorithm.weigh(one, Walk(one, one, one, one)) is not None,
            "engine.uploads",
            f"'stacked' with {type(self.algorithm).__name__}, whose server needs every upload",
            self.engine.uploads,
        )
        probes = self.evaluation.probes
        require(
            "drift" not in probes,
            "evaluation.probes",
            "without 'drift', which needs every upload, where engine.uploads = 'sums'",
            probes,
        )
        require(
            self.gate.is_open and self.gate.is_plain,
            "engine.uploads",
            "'stacked' with faults, attack, defence or privacy, which look at every upload",
            self.engine.uploads,
        )

    @property
    def gate(self) -> Gate:
        """What stands between clients and server."""
        kinds = (self.faults, self.attack, self.defence, self.privacy)
        return Gate(*kinds, self.seed, self.engine.is_real)

    @property
    def adds(self) -> bool:
        """Is a sum of the uploads enough, where the algorithm weighs them? Nobody looks at a single one."""
        if self.engine.kind == "ray":
            return self.engine.uploads == "sums"
        looks = {"drift", "rates"} & set(self.evaluation.probes)
        return self.gate.is_open and self.gate.is_plain and not looks

    @property
    def is_uniform(self) -> bool:
        """Is every cohort a uniform sample of those who exist, of a fixed size?

        Real clients have the study file, and with its seed they know who is drawn: no sample for them.
        """
        steady = isinstance(self.network, IdealNetwork) and not self.faults.is_active
        return steady and type(self.participation) is Uniform and not self.engine.is_real


@cache
def sections() -> dict[str, type]:
    """The class that every section of an experiment is of."""
    hints = get_type_hints(Experiment)
    return {name: get_origin(hint) or hint for name, hint in hints.items() if name != "seed"}
