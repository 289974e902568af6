"""What a round of an experiment costs on its network, from rounds that are drawn but not trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from fedtide.core.types import Ids, Phases, Plan, Work
from fedtide.engines.kinds import LoopSettings
from fedtide.guard.attacks import Attack
from fedtide.run import round as rounds
from fedtide.run.experiment import Experiment
from fedtide.run.state import first_state
from fedtide.run.world import World


class Drawn(NamedTuple):
    """One drawn round: the clients, their work, and what each can afford."""

    asked: Ids
    work: Work
    plan: Plan

    @property
    def stragglers(self) -> Ids:
        """The clients that had data, but could not afford the round or did not deliver."""
        return self.asked[~self.plan.able & (self.work.steps > 0)]


def cost(e: Experiment, seeds: Sequence[int], count: int) -> dict[str, Any]:
    """Means over so many drawn rounds of every seed, and standard deviations."""
    by_seed = [list(draw(replace(e, seed=seed), count)) for seed in seeds]
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
    """For each client, the share of its rounds in which it straggled."""
    late = Counter(int(client) for d in drawn for client in d.stragglers)
    asked = Counter(int(client) for d in drawn for client in d.asked)
    return {client: late[client] / asked[client] for client in sorted(asked)}


def draw(e: Experiment, count: int) -> Iterator[Drawn]:
    """The first rounds of a run, without training; after the last round of the population it begins anew."""
    e = replace(e, engine=LoopSettings(device="cpu"), attack=Attack())
    with World.build(e) as world:
        now, length = first_state(e, world), e.population.length
        for t in range(count):
            session, place = e.population.at(t % length, e.seed), t % length
            world.population = len(session.clients)
            if place == session.first:
                now = now._replace(server=e.algorithm.init(world.initial.x, world.context))
            ids, news = rounds.draw(e, session, t, now.who)
            work, plan, now = rounds.plan(e, world, t, ids, now, news, held=place)
            yield Drawn(ids, work, plan)
            if plan.able.any():  # messages may grow: the server's state goes on as in a run
                one = ids[plan.able][:1]
                now = now._replace(server=world.idle_round(e.algorithm, now.server, place, one))


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
