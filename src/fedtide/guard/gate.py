"""The gate between clients and server: which uploads pass, and how they are combined."""

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
from fedtide.core.types import Cohort, Dataset, Ids, Tested
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
    """Faults, attack, defence and privacy of one run; without any of them uploads pass unchanged."""

    faults: Faults
    attack: Attack
    defence: Defence
    privacy: Privacy
    seed: int
    is_real: bool = False  # with real clients, noise comes from the operating system

    @property
    def is_open(self) -> bool:
        """Do all uploads pass unchanged?"""
        return not (self.faults.is_active or self.attack.share)

    @property
    def is_plain(self) -> bool:
        """Does the algorithm aggregate the uploads itself, without defence and privacy?"""
        return isinstance(self.defence, PlainMean) and not self.privacy.is_active

    @property
    def reads_uploads(self) -> bool:
        """Must every upload arrive by itself? Not where a weighted sum of them is enough."""
        return not (self.is_open and self.is_plain)

    @property
    def keeps_sums(self) -> bool:
        """Is a server's mean over clients' memories equal to the mean of what they really remember?

        Not if an attack, a defence or privacy changes uploads after clients have remembered what they sent,
        nor if clients remember rounds whose uploads the server never counted.
        """
        return self.is_plain and not self.attack.share and self.faults.memories == "discard"

    def check(self, algorithm: AnyAlgorithm) -> None:
        """Raise a `ConfigError` if this algorithm does not work with the defence or privacy."""
        if not (self.is_plain or algorithm.weighs):
            # Named only now: looking for the kinds of installed packages takes much longer than the check.
            weighs = [name for name, kind in ALGORITHMS.items() if kind().weighs]
            require(
                False,
                "algorithm",
                "one whose server needs only the mean of the uploads, if a defence or privacy changes "
                "that mean",
                type(algorithm).__name__,
                f"Use one of {', '.join(weighs)}, or leave defence and privacy out.",
            )
        require(
            isinstance(self.defence, PlainMean) or not self.privacy.noise,
            "defence",
            "the mean if privacy adds noise: how much one client can change another rule is not known",
            type(self.defence).__name__,
        )

    def check_cohorts(self, sizes: Iterable[int]) -> None:
        """Raise a `ConfigError` if the defence can defend no cohort of these sizes."""
        problem = ""
        for size in sizes:
            problem = self.defence.problem(size)
            if not problem:
                return
        require(
            not problem,
            "defence",
            "one that can defend a cohort against at least one hostile client",
            f"{self.defence}: {problem}",
            "Change defence.share, use larger cohorts, or use defence = 'median'.",
        )

    def noted(self, drawn: Ids, ids: Ids) -> dict[str, Any]:
        """Facts for the journal about a round: `drawn` are its cohort, `ids` the clients that replied."""
        facts: dict[str, Any] = {}
        if self.privacy.noise and len(ids) < len(drawn):
            facts["missing"] = np.setdiff1d(drawn, ids).tolist()  # for the accountant
        if self.defence.counts:
            facts["undefended"] = int(len(ids) > 0 and bool(self.defence.problem(len(ids))))
        if facts.get("undefended"):
            warnings.warn(
                f"{self.defence} must have cohorts that are large enough. Got rounds that it could not "
                "defend: see `undefended` in the journal. Change defence.share, or use defence = 'median'.",
                RuntimeWarning,
                stacklevel=2,
            )
        return facts

    def poisoned(self, dataset: Dataset, holdings: Holdings) -> Dataset:
        """The dataset with the labels that hostile clients train on."""
        if type(self.attack).targets is Attack.targets:
            return dataset
        if not isinstance(holdings, Static):
            raise ConfigError(
                "attack 'label-flip' must have clients whose data do not change. Got stores that change. "
                "Use data.stores = 'static' or another attack."
            )
        must = "used with targets that are labels, one whole number for each example"
        got = f"targets of shape {list(dataset.train.targets.shape)}"
        require(dataset.classes > 0, "attack 'label-flip'", must, got, "Use another attack.")
        train, hostile = dataset.train, self.attack.members(holdings.clients, self.seed)
        place = torch.from_numpy(holdings.held(0, hostile)).to(train.device)
        targets = train.targets.clone()
        targets[place] = self.attack.targets(targets[place], dataset.classes)
        return replace(dataset, train=replace(train, targets=targets))

    def remembering(self, sent: Ids, passed: Ids) -> Ids:
        """The clients that remember the round: those whose upload passed.

        With `faults.memories = "keep"` all clients that sent an upload remember it, even if it did not
        arrive.
        """
        return sent if self.faults.memories == "keep" else passed

    def received(self, result: Result, hostile: Ids, t: int) -> Result:
        """The uploads that arrive and are accepted; `facts` has the ids of those lost or refused."""
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

    def tested(self, answers: Tested, hostile: Ids, t: int) -> Tested:
        """The losses that the server accepts: the finite ones, once hostile clients have told lies."""
        if self.attack.share:
            bad = np.isin(answers.ids, hostile)
            answers = answers._replace(losses=self.attack.losses(answers.losses, bad, t))
        return answers.some(answers.ids[np.isfinite(answers.losses).all(0)])

    def aggregated(
        self, algorithm: AnyAlgorithm, server: Any, result: Result, cohort: Cohort, drawn: Ids
    ) -> Any:
        """The server's state after a round with the cohort `drawn`."""
        if self.is_plain:
            return result.aggregated(algorithm, server, cohort)
        weights = algorithm.weigh(cohort.share, cohort.walk)
        assert weights is not None
        sent = self.privacy.clipped(flat(result.up))
        total = self.defence.combined(sent, weights)
        if self.privacy.noise:  # a client of the cohort that did not reply counts as zero
            seed = None if self.is_real else self.seed
            total = self.privacy.noised(total, weights, len(drawn), cohort.t, seed)
            cohort = cohort._replace(ids=torch.from_numpy(drawn).to(cohort.ids))
        return algorithm.move(server, shaped(total, result.up), cohort)

    def privacy_spent(self, lines: Sequence[Line], is_uniform: bool) -> dict[str, Any]:
        """The privacy spent in a whole run; "simulated" if the noise can be computed from the seed."""
        epsilon = self.privacy.epsilon(lines, is_uniform)
        name = "epsilon" if self.is_real else "simulated_epsilon"
        return {} if epsilon is None else {name: epsilon, "delta": self.privacy.delta}


def _some(result: Result, stays: Any) -> Result:
    """The part of a result that belongs to the clients with `stays`."""
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
