"""A session begins: a new start, or the answer of server and clients to a changed population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedtide.algorithms.base import Change
from fedtide.core.errors import require
from fedtide.core.types import Ids, Model, Session
from fedtide.engines.base import NOBODY, Result
from fedtide.run.experiment import Experiment
from fedtide.run.gradients import Rehearsal
from fedtide.run.world import House
from fedtide.starts.archive import Archive
from fedtide.starts.base import Beginning
from fedtide.starts.trigger import Era

GONE = -1  # in `State.since`: the client does not exist now


class State(NamedTuple):
    """What changes from round to round; what clients remember stays with the engine."""

    server: Any  # the algorithm's
    model: Model
    era: Era  # since the last start
    archive: Archive
    network: Any  # time and batteries
    made: int = 0  # rounds in which the server has aggregated
    present: Ids = NOBODY  # the clients that the server's state counts, sorted
    since: Ids = NOBODY  # `made` when each of them came; GONE in rounds without any client

    def ages(self, t: int, ids: Ids) -> Ids:
        """Rounds in which the server has aggregated since each of these clients came."""
        place = np.searchsorted(self.present, ids).clip(max=len(self.present) - 1)
        strangers = ids[self.present[place] != ids]
        require(
            not len(strangers),
            f"round {t}: participation",
            "a choice among the clients that exist",
            strangers[:10].tolist(),
            "Return ids of `session.clients` from `draw`.",
        )
        ages: Ids = self.made - self.since[place]
        return ages


def begin(
    e: Experiment, house: House, t: int, session: Session, now: State, resumed: bool
) -> tuple[State, Mapping[str, Any], Mapping[str, Any]]:
    """Answer a change of clients with a new start, if one is due; with facts about it and its costs.

    Clients may also have changed since a run was stopped that is `resumed` in this round.
    """
    facts: Mapping[str, Any]
    if t == session.first:
        if e.population.announced:
            e.participation.check_session(session)
        house.enter(session)
    rehearse = Rehearsal(house, e.algorithm, e.network, now.network, session, t, e.seed, e.adds)
    number = now.era.number + 1
    known = Beginning(
        number, session, house.initial, now.model, house.layout, now.archive, rehearse
    )
    if not e.start.is_due(t, now.era, known):
        now, facts = now._replace(network=rehearse.state), {}
        if resumed or t == session.first:
            now, facts = carried(e, house, session, now, False)
        return now, facts, rehearse.bill
    past = now.era.over(now.model)
    archive = e.start.store(now.archive, past, house.layout) if number else Archive()
    begun = e.start.begin(known._replace(archive=archive))
    era = Era(number, t, session.clients, begun.gradient)
    facts = {"start": number, **begun.facts}
    if number and begun.model is now.model and e.train.memories == "carry":
        now = now._replace(era=era, archive=archive, network=rehearse.state)
        now, more = carried(e, house, session, now, True)
        return now, {**facts, **more}, rehearse.bill
    if e.train.memories != "keep":
        house.engine.memory.clear()
    server = e.algorithm.restart(now.server, begun.model.x, house.context)
    present, since = arrivals(now, session)
    now = State(server, begun.model, era, archive, rehearse.state, now.made, present, since)
    return now, facts, rehearse.bill


def horizon(e: Experiment, session: Session, era: Era) -> int:
    """How many rounds a learning-rate schedule spans: a session, or all that are left of the run.

    Only where every session begins with a start is it known when the next one comes.
    """
    return session.rounds if e.start.trigger.is_steady else e.population.length - era.first


def arrivals(now: State, session: Session) -> tuple[Ids, Ids]:
    """The clients that exist, sorted, and how often the server had aggregated when each of them came."""
    clients = np.sort(session.clients)
    since = np.full(len(clients), now.made)
    _, here, before = np.intersect1d(clients, now.present, assume_unique=True, return_indices=True)
    since[here] = np.where(now.since[before] == GONE, now.made, now.since[before])
    return clients, since


def carried(
    e: Experiment, house: House, session: Session, now: State, start: bool
) -> tuple[State, Mapping[str, Any]]:
    """The state when the model stays: those who left no longer count, those who came do."""
    if not len(session.clients):  # the mean over no clients is none: it stays until some come
        return now._replace(since=np.full_like(now.since, GONE)), {}
    before, (present, since) = now.present, arrivals(now, session)
    left = np.setdiff1d(before, present, assume_unique=True)
    came = np.setdiff1d(present, before, assume_unique=True)
    now = now._replace(present=present, since=since)
    if not (start or len(left) or len(came)):
        return now, {}
    if e.algorithm.has_own("row") and not e.gate.keeps_sums:
        house.engine.memory.clear()
        return now._replace(server=e.algorithm.init(now.model.x, house.context)), {
            "memories": "anew"
        }
    count = len(before)
    if len(left) > len(present):  # quicker, and no error of the old mean is multiplied
        count, left, came = 0, left[:0], present
    return recounted(e, house, now, count, left, came, start), {}


def recounted(
    e: Experiment, house: House, now: State, before: int, left: Ids, came: Ids, start: bool
) -> State:
    """The state when the server no longer counts those who left, and counts those who came."""
    down = e.algorithm.broadcast(now.server)
    gone, back = (house.engine.row_sum(e.algorithm, ids, down) for ids in (left, came))
    here = torch.from_numpy(now.present).to(house.initial.x.device)
    return now._replace(
        server=e.algorithm.changed(now.server, Change(here, before, gone, back, start))
    )


def remembered(e: Experiment, house: House, now: State, sent: Result, passed: Ids) -> State:
    """After a round: clients whose uploads passed remember it, and the server knows who had forgotten."""
    forgot = np.intersect1d(sent.forgot, passed)
    if len(forgot) and e.algorithm.has_own("row") and e.gate.keeps_sums:
        now = recounted(e, house, now, len(now.present), forgot, forgot[:0], start=False)
    house.engine.keep(sent, e.gate.remembering(sent.ids, passed))
    return now
