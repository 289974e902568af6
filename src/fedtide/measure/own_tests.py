"""The scores of single clients on their own test examples, and what a journal keeps of them.

The cost of a test depends on how many clients are tested, not on the population.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.trees import rows
from fedtide.core.types import Ids, Model, OwnTests
from fedtide.data.holdings import Static
from fedtide.engines.base import Engine
from fedtide.engines.each import outputs_of_each
from fedtide.measure.census import SHOWN
from fedtide.tasks.objective import Meters, Objective
from fedtide.tasks.scores import Sums

Floats = NDArray[np.float64]

BLOCK = 1024  # examples whose outputs are computed at once
STACK_BYTES = 64 << 20  # of models and inputs that are stacked
BINS = 20  # of a histogram
WORST = 10  # the worst tenth of the clients


class ScoresByClient:
    """Adds up what the score of each client follows from, over blocks of examples of several clients."""

    def __init__(self, objective: Objective, clients: int) -> None:
        self.objective = replace(objective, metrics=objective.metrics[:1])  # the score alone
        self.sums = np.zeros((len(Sums._fields), clients))
        meets = self.objective.has_meters
        self.meters = [Meters(self.objective) if meets else None for _ in range(clients)]

    def add(self, outputs: Tensor, targets: Tensor, clients: NDArray[np.int64]) -> None:
        """Count a block of examples; `clients` [B] has the place of the client of each."""
        objective, count = self.objective, self.sums.shape[1]
        right, one = objective.right(outputs, targets), torch.ones(len(targets))
        weight = objective.weight(targets) if objective.is_weighted else one
        each = (
            objective.losses(outputs, targets),
            one * 0 if right is None else right,
            weight,
            one,
        )
        for row, values in zip(self.sums, each, strict=True):  # in the order of `Sums`
            row += np.bincount(clients, values.double().cpu().numpy(), minlength=count)
        for place in np.unique(clients) if objective.has_meters else ():
            mine = torch.from_numpy(np.flatnonzero(clients == place)).to(targets.device)
            self.meters[place].update(outputs[mine], targets[mine])

    def scores(self) -> Floats:
        """The score of each client; not a number where it is not defined."""
        found = [
            self.objective.scored(Sums(*sums), meters).score if sums[2] else None
            for sums, meters in zip(self.sums.T.tolist(), self.meters, strict=True)
        ]
        return np.array([np.nan if score is None else score for score in found], dtype=np.float64)


@dataclass
class Bench:
    """Tests models on the test examples of single clients."""

    engine: Engine
    own: OwnTests
    objective: Objective

    @cached_property
    def held(self) -> Static:
        """Whose each test example is."""
        return Static.of_owners(self.own.clients, self.engine.data.holdings.clients)

    def known(self, ids: Ids) -> Ids:
        """Those of these clients that have test examples."""
        return ids[self.held.sizes(0, ids) > 0]

    def scores(self, model: Model, ids: Ids) -> Floats:
        """The score of a model for each of these clients, [U]; one forward pass over all their examples."""
        found = ScoresByClient(self.objective, len(ids))
        sizes = self.held.sizes(0, ids)
        clients = np.repeat(np.arange(len(ids)), sizes)
        starts = np.repeat(sizes.cumsum() - sizes, sizes)
        places = self.held.examples(0, ids[clients], np.arange(len(clients)) - starts)
        examples = self.own.examples
        for first in range(0, len(clients), BLOCK):
            block = torch.from_numpy(places[first : first + BLOCK]).to(examples.device)
            inputs, targets = examples.take(block)
            with torch.no_grad():
                outputs = self.engine.outputs(model, inputs)
                found.add(outputs, targets, clients[first : first + BLOCK])
        return found.scores()

    def scores_of_each(self, models: Model, ids: Ids) -> Floats:
        """The score of each client's own model, stacked [U], for that client."""
        found, sizes = ScoresByClient(self.objective, len(ids)), self.held.sizes(0, ids)
        examples, most = self.own.examples, int(sizes.max(initial=1))
        each = 4 * (models.x.shape[1] + most * examples.width)
        count = max(1, STACK_BYTES // each)
        for first in range(0, len(ids), count):
            part = np.arange(first, min(first + count, len(ids)))
            there = np.arange(int(sizes[part].max())) < sizes[part][:, None]
            places = np.where(there, np.arange(there.shape[1]), 0)
            index = torch.from_numpy(self.held.examples(0, ids[part], places)).to(examples.device)
            inputs, targets = examples.take(index)
            mask = torch.from_numpy(there).to(examples.device)
            with torch.no_grad():
                outputs = outputs_of_each(
                    self.engine, rows(models, slice(part[0], part[-1] + 1)), inputs
                )
                found.add(outputs[mask], targets[mask], part[np.nonzero(there)[0]])
        return found.scores()


def told(ids: Ids, scores: Floats, larger: bool) -> dict[str, Any]:
    """Mean, worst tenth, spread and histogram of the scores of clients, for the journal.

    Clients whose score is not defined are left out. Of few clients every score is kept, too.
    """
    known = np.isfinite(scores)
    ids, scores = ids[known], scores[known]
    if not len(scores):
        return {"clients": 0}
    from_worst = np.sort(scores) if larger else np.sort(scores)[::-1]
    found = {
        "clients": len(scores),
        "mean": float(scores.mean()),
        "worst": float(from_worst[: -(-len(scores) // WORST)].mean()),
        "spread": float(scores.std()),
        "histogram": histogram(scores),
    }
    if len(ids) <= SHOWN:
        found |= {"ids": ids.tolist(), "scores": scores.tolist()}
    return found


def histogram(scores: Floats) -> dict[str, list[Any]]:
    """How many clients have a score in each bin; shares have bins from 0 to 1."""
    low, high = float(scores.min()), float(scores.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    counts, edges = np.histogram(scores, BINS, (low, high) if high > low else (low, low + 1))
    return {"edges": [round(edge, 10) for edge in edges.tolist()], "clients": counts.tolist()}
