"""What a round of an experiment costs on its network, from rounds that are drawn but not trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from fedtide.core.types import Ids, Phases, Plan, Work
from fedtide.engines.kinds import EngineChoice
from fedtide.run.experiment import Experiment
from fedtide.run.world import House


class Drawn(NamedTuple):
    """One round: who was asked, for which work, and what came of it."""

    asked: Ids
    work: Work
    plan: Plan

    @property
    def stragglers(self) -> Ids:
        """Who had data, but could not afford the round or did not deliver."""
        return self.asked[~self.plan.able & (self.work.steps > 0)]


def price(e: Experiment, seeds: Sequence[int], rounds: int) -> dict[str, Any]:
    """Means over so many drawn rounds of every seed, and how far rounds lie apart."""
    by_seed = [list(draw(replace(e, seed=seed), rounds)) for seed in seeds]
    drawn = [d for each in by_seed for d in each]
    shares = [straggling(each) for each in by_seed]  # with another seed, clients are other devices
    every = sorted(share for each in shares for share in each.values())
    return {
        "seconds": _spread([d.plan.latency for d in drawn]),
        "joules": _spread([float(d.plan.joules.sum()) for d in drawn]),
        "seconds_by_phase": _by_phase([_means(d) for d in drawn]),
        "joules_by_phase": _by_phase([_sums(d) for d in drawn]),
        "asked": fmean(len(d.asked) for d in drawn),
        "take_part": fmean(int(d.plan.able.sum()) for d in drawn),
        "steps": fmean(float(d.plan.steps[d.plan.able].sum()) for d in drawn),
        "stragglers": fmean(len(d.stragglers) for d in drawn),
        "straggle_share": {client: share for client, share in shares[0].items() if share},
        "straggle_shares": every,  # of all clients of all seeds, sorted: their distribution
        "straggle_half": sum(share >= 0.5 for share in every) / max(len(every), 1),
    }


def straggling(drawn: Sequence[Drawn]) -> dict[int, float]:
    """In which share of the rounds in which it was asked each client straggled."""
    late = Counter(int(client) for d in drawn for client in d.stragglers)
    asked = Counter(int(client) for d in drawn for client in d.asked)
    return {client: late[client] / asked[client] for client in sorted(asked)}


def draw(e: Experiment, rounds: int) -> Iterator[Drawn]:
    """The first rounds of a run, without training; after the last round of the population it begins anew."""
    one = EngineChoice(kind="loop", device="cpu")
    with House.furnish(e.data, e.population, e.train, one, e.seed) as house:
        state = e.network.start(house.crowd.clients, e.seed)
        who = e.participation.start(house.crowd, e.seed)
        for t in range(rounds):
            session = e.population.at(t % e.population.length, e.seed)
            house.population = len(session.clients)
            place = t % e.population.length
            if place == session.first:
                server = e.algorithm.init(house.initial.x, house.context)
            down = e.algorithm.broadcast(server)
            ids, news = e.participation.take(who, t, session, e.seed)
            work = house.work(place, ids, e.algorithm, down, news)
            plan, state = e.network.plan(state, t, ids, work, e.seed)
            yield Drawn(ids, work, plan)
            if plan.able.any():  # messages may grow: what the server knows goes on as in a run
                server = house.idled(e.algorithm, server, down, place, ids[plan.able][:1])


def _means(d: Drawn) -> list[float]:
    """Seconds of each phase, a mean over those who began."""
    return [float(part.mean()) if len(part) else 0.0 for part in _parts(d, d.plan.seconds_by)]


def _sums(d: Drawn) -> list[float]:
    return [float(part.sum()) for part in _parts(d, d.plan.joules_by)]


def _parts(d: Drawn, by: Phases | None) -> Sequence[Any]:
    return [part[d.plan.seconds > 0] for part in by] if by else [np.zeros(0)] * 3


def _by_phase(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    return {
        name: fmean(column)
        for name, column in zip(Phases._fields, zip(*rows, strict=True), strict=True)
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0}
