"""The gate between clients and server: what passes, and how it becomes one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedtide.algorithms import ALGORITHMS
from fedtide.core.errors import ConfigError, require
from fedtide.core.trees import rows, tree_map
from fedtide.core.types import Cohort, Dataset, Ids
from fedtide.data.holdings import Holdings, Static
from fedtide.engines.base import Result
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence, PlainMean
from fedtide.guard.faults import Faults
from fedtide.guard.privacy import Privacy
from fedtide.guard.uploads import flat, refusals, shaped
from fedtide.training.messages import AnyAlgorithm

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Gate:
    """Faults, attack, defence and privacy of one run; without any of them uploads pass untouched."""

    faults: Faults
    attack: Attack
    defence: Defence
    privacy: Privacy
    seed: int
    is_real: bool = False  # are the clients real? Then noise comes from the operating system

    @property
    def is_open(self) -> bool:
        """Does everything pass as it is?"""
        return not (self.faults.is_active or self.attack.share)

    @property
    def is_plain(self) -> bool:
        """Does the algorithm aggregate by itself?"""
        return isinstance(self.defence, PlainMean) and not self.privacy.is_active

    @property
    def reads_uploads(self) -> bool:
        """Must every upload arrive by itself? Not where a weighted sum of them is enough."""
        return not (self.is_open and self.is_plain)

    @property
    def keeps_sums(self) -> bool:
        """Is a server's mean of what clients remember the sum of what they really remember?

        Not where an attack, a defence or privacy changes uploads after the client has noted what it sent,
        nor where clients keep what the server never counted.
        """
        return self.is_plain and not self.attack.share and self.faults.memories == "discard"

    def check(self, algorithm: AnyAlgorithm) -> None:
        """Can this algorithm do with what the gate gives it?"""
        weighs = [name for name, kind in ALGORITHMS.items() if kind().weighs]
        require(
            self.is_plain or algorithm.weighs,
            "algorithm",
            "one whose server needs only the mean of the uploads, where defence or privacy changes it",
            type(algorithm).__name__,
            f"Use one of {', '.join(weighs)}, or leave defence and privacy out.",
        )
        require(
            isinstance(self.defence, PlainMean) or not self.privacy.noise,
            "defence",
            "the mean where privacy adds noise: how much one client can change another rule is not known",
            type(self.defence).__name__,
        )

    def check_cohorts(self, sizes: Iterable[int]) -> None:
        """Refuse a defence that defends none of these cohorts; stops at the first one it does."""
        problem = ""
        for size in sizes:
            problem = self.defence.problem(size)
            if not problem:
                return
        require(
            not problem,
            "defence",
            "one that withstands at least one hostile client of the cohort",
            f"{self.defence}: {problem}",
            "Change defence.share, take more clients a round, or use defence = 'median'.",
        )

    def noted(self, drawn: Ids, ids: Ids) -> dict[str, Any]:
        """Facts for the journal about a round for which some were drawn and some answered."""
        facts: dict[str, Any] = {}
        if self.privacy.noise and len(ids) < len(drawn):
            facts["missing"] = np.setdiff1d(drawn, ids).tolist()  # for the accountant
        if self.defence.counts:
            facts["undefended"] = int(len(ids) > 0 and bool(self.defence.problem(len(ids))))
        if facts.get("undefended"):
            warnings.warn(
                f"{self.defence} must meet cohorts that are large enough. Got rounds in which it defends "
                "nobody: see `undefended` in the journal. Change defence.share, or use defence = 'median'.",
                RuntimeWarning,
                stacklevel=2,
            )
        return facts

    def poisoned(self, dataset: Dataset, holdings: Holdings) -> Dataset:
        """The data as hostile clients use them."""
        if type(self.attack).targets is Attack.targets:
            return dataset
        if not isinstance(holdings, Static):
            raise ConfigError(
                "attack label-flip must meet clients that keep their data. Got stores that change. "
                "Use data.stores = 'static' or another attack."
            )
        train, hostile = dataset.train, self.attack.members(holdings.clients, self.seed)
        place = torch.from_numpy(holdings.held(0, hostile)).to(train.targets.device)
        targets = train.targets.clone()
        targets[place] = self.attack.targets(targets[place], dataset.classes)
        return replace(dataset, train=replace(train, targets=targets))

    def remembering(self, sent: Ids, passed: Ids) -> Ids:
        """Which of the clients that sent an upload remember the round: those whose upload passed.

        `faults.memories = "keep"` lets clients keep what they learnt even if their upload did not arrive.
        """
        return sent if self.faults.memories == "keep" else passed

    def received(self, result: Result, hostile: Ids, t: int) -> Result:
        """What arrives of a round; its facts tell what was lost or refused."""
        if self.is_open:
            return result
        bad = torch.from_numpy(np.isin(result.ids, hostile)).to(result.walk.steps.device)
        sent = result.up
        if bad.any():
            sent = shaped(self.attack.rows(flat(sent), bad, t, self.seed), sent)
        lost, apart = self.faults.damage(sent, t, result.ids, self.seed)
        reasons = refusals(sent, apart, self.faults.max_norm or float("inf"))
        stays = ~lost
        stays[[place for place in reasons if not lost[place]]] = False
        facts = dict(result.facts)
        if self.attack.share:
            facts["hostile"] = int(bad.sum())
        if lost.any():
            facts["lost_uploads"] = result.ids[lost].tolist()
        refused = {str(result.ids[p]): why for p, why in reasons.items() if not lost[p]}
        if refused:
            facts["refused"] = refused
        return _some(result._replace(up=sent, facts=facts), stays)

    def aggregated(
        self, algorithm: AnyAlgorithm, server: Any, result: Result, cohort: Cohort, drawn: Ids
    ) -> Any:
        """The server's state after a round for which these clients were drawn."""
        if self.is_plain:
            return result.aggregated(algorithm, server, cohort)
        weights = algorithm.weigh(cohort.share, cohort.walk)
        assert weights is not None
        sent = self.privacy.clipped(flat(result.up))
        total = self.defence.combined(sent, weights)
        if self.privacy.noise:  # whoever was drawn and did not answer counts as zero
            seed = None if self.is_real else self.seed
            total = self.privacy.noised(total, weights, len(drawn), cohort.t, seed)
            cohort = cohort._replace(ids=torch.from_numpy(drawn).to(cohort.ids))
        return algorithm.move(server, shaped(total, result.up), cohort)

    def privacy_spent(self, lines: Sequence[Line], is_uniform: bool) -> dict[str, Any]:
        """What a whole run tells about a client; simulated where noise can be computed from the seed."""
        epsilon = self.privacy.epsilon(lines, is_uniform)
        name = "epsilon" if self.is_real else "simulated_epsilon"
        return {} if epsilon is None else {name: epsilon, "delta": self.privacy.delta}


def _some(result: Result, stays: Any) -> Result:
    """The part of a result that belongs to some of its clients."""
    if stays.all():
        return result
    kept = torch.from_numpy(np.flatnonzero(stays)).to(result.walk.steps.device)
    return result._replace(
        owners=result.trained,
        ids=result.ids[stays],
        up=rows(result.up, kept),
        buffers=tree_map(lambda leaf: leaf[kept], result.buffers),
        training=rows(result.training, kept),
        walk=rows(result.walk, kept),
    )
