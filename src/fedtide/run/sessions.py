"""A session begins: a new start, or the answer of server and clients to a changed population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtide.core.types import Session
from fedtide.measure.census import counted, holdings, moved, sample
from fedtide.run.experiment import Experiment
from fedtide.run.preparation import Preparation
from fedtide.run.round import recount
from fedtide.run.state import GONE, NEVER, Now
from fedtide.run.world import World
from fedtide.starts.archive import Archive
from fedtide.starts.base import Beginning
from fedtide.starts.trigger import Era
from fedtide.training.explain import check_state, explained

PRICES = ("steps", "bytes_down", "bytes_up", "latency", "joules")  # keys of a journal line
Answer = tuple[Now, tuple[Mapping[str, Any], Mapping[str, Any]]]


def answer(
    e: Experiment,
    world: World,
    session: Session,
    t: int,
    now: Now,
    resumed: bool,
    forced: str = "",
) -> Answer:
    """Answer a change of clients with a new start, if one is due; with facts about it and its costs.

    Clients may also have changed since a run was stopped that is `resumed` in this round. A start
    that is `forced`, for a reason, is made without asking whether it is due, which may cost tests.
    """
    is_first = t == session.first
    if is_first:
        if e.population.announced:
            e.participation.check_session(session)
        world.enter(session)
    preparation = Preparation(e, world, session, t, now)
    known = preparation.known
    facts: Mapping[str, Any] = {}
    with explained("start", t):
        reason, era = (forced, now.era) if forced else e.start.decide(t, now.era, known)
        now = now._replace(network=preparation.now.network, era=era)
        if reason:
            now, facts = begin(e, world, known, t, now)
            facts = {**facts, "start_reason": reason}
            now = now._replace(network=preparation.now.network)
        elif resumed or is_first:
            now = now._replace(era=now.era.changed(session.clients, now.model))
            now, facts = carry(e, world, session, now, start=False)
    if era.watch.t == t:
        facts = {**facts, **e.start.trigger.facts(era.watch)}
    if preparation.bill:
        facts = {**facts, "start_costs": priced(preparation.bill)}
    if is_first:
        now, news = census(e, world, t, session, now)
        facts = {**facts, **news}
    return now, (facts, preparation.bill)


def priced(bill: Mapping[str, Any]) -> dict[str, float]:
    """What a line of the journal already counts among the costs of its round."""
    return {name: bill[name] for name in PRICES if name in bill}


def begin(
    e: Experiment, world: World, known: Beginning, t: int, now: Now
) -> tuple[Now, Mapping[str, Any]]:
    """The state after a start in round t, and facts about it."""
    number, session = known.number, known.session
    archive = with_last_session(e, world, now)
    begun = e.start.begin(known._replace(archive=archive))
    era = Era(number, t, session.clients, begun.gradient)
    facts = {"start": number, **begun.facts}
    if number and begun.model is not now.model and "start_losses" not in facts:
        facts["start_untested"] = True
    if (
        number
        and not now.era.is_earlier
        and begun.model is now.model
        and e.train.memories == "carry"
    ):
        now, more = carry(e, world, session, now._replace(era=era, archive=archive), start=True)
        return now, {**facts, **more}
    if e.train.memories != "keep":
        world.engine.memory.clear()
    server = e.algorithm.restart(now.server, begun.model.x, world.context)
    check_state(e.algorithm, "init", server)
    now = now._replace(server=server, model=begun.model, era=era, archive=archive)
    return now._replace(members=now.members.among(session)), facts


def with_last_session(e: Experiment, world: World, now: Now) -> Archive:
    """The archive with the session that ends now, unless an earlier run has stored it already."""
    if now.era.number < 0 or now.era.is_earlier:
        return now.archive
    return e.start.store(now.archive, now.era.over(now.model), world.layout)


def carry(
    e: Experiment, world: World, session: Session, now: Now, start: bool
) -> tuple[Now, Mapping[str, Any]]:
    """The state when the model stays: clients that left no longer count, clients that came do."""
    if not len(session.clients):  # the mean over no clients is undefined: it stays until some come
        since = np.full_like(now.members.since, GONE)
        return now._replace(members=now.members._replace(since=since)), {}
    before, members = now.members.present, now.members.among(session)
    left = np.setdiff1d(before, members.present, assume_unique=True)
    came = np.setdiff1d(members.present, before, assume_unique=True)
    now = now._replace(members=members)
    if not (start or len(left) or len(came)):
        return now, {}
    if e.algorithm.has_own("row") and not e.gate.keeps_sums:
        world.engine.memory.clear()
        server = e.algorithm.init(now.model.x, world.context)
        return now._replace(server=server), {"memories": "anew"}
    count = len(before)
    if len(left) > len(members.present):  # quicker, and no error of the old mean is multiplied
        count, left, came = 0, left[:0], members.present
    return recount(e, world, now, count, left, came, start), {}


def census(
    e: Experiment, world: World, t: int, session: Session, now: Now
) -> tuple[Now, Mapping[str, Any]]:
    """Who came and who left with this session; in the first round also what clients hold."""
    before = e.population.at(t - 1, e.seed).clients if t else session.clients[:0]
    came, left = moved(before, session.clients)
    since, clients = np.unique(now.came[left], return_counts=True)
    gone = {**counted(left), "since": [since.tolist(), clients.tolist()]}
    returned = int((now.came[came] != NEVER).sum())
    facts = {"arrived": counted(came), "left": gone, "returned": returned}
    since_when = now.came.copy()
    since_when[came] = t
    if t == 0 and world.sees_labels:
        some = sample(world.crowd.clients)
        facts |= holdings(some, world.labels(t, some))
    return now._replace(came=since_when), facts
