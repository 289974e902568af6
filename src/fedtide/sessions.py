"""A session begins: a new start, or the answer of server and clients to a changed population."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedtide.algorithms.base import Change
from fedtide.core.types import Ids, Model, Session
from fedtide.engines.base import NOBODY, Result
from fedtide.engines.house import House
from fedtide.engines.rehearsal import Rehearsal
from fedtide.experiment import Experiment
from fedtide.starts.archive import Archive
from fedtide.starts.base import Beginning
from fedtide.starts.trigger import Era

GONE = -1  # in place of the round in which a client came


class State(NamedTuple):
    """What changes from round to round; what clients remember stays with the engine."""

    server: Any  # the algorithm's
    model: Model
    era: Era  # since the last start
    archive: Archive
    network: Any  # time and batteries
    present: Ids = NOBODY  # the clients that the server's state counts, sorted
    since: Ids = NOBODY  # the round in which each of them came; GONE in rounds without any client

    def ages(self, t: int, ids: Ids) -> Ids:
        """Rounds since each of these clients came."""
        return t - self.since[np.searchsorted(self.present, ids)]


def begin(
    e: Experiment, house: House, t: int, session: Session, now: State
) -> tuple[State, Mapping[str, Any], Mapping[str, Any]]:
    """Answer a change of clients with a new start, if one is due; with facts about it and its costs."""
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
        now, facts = carried(e, house, t, session, now._replace(network=rehearse.state), False)
        return now, facts, rehearse.bill
    past = now.era.over(now.model)
    archive = e.start.store(now.archive, past, house.layout) if number else Archive()
    begun = e.start.begin(known._replace(archive=archive))
    era = Era(number, t, session.clients, begun.gradient)
    facts = {"start": number, **begun.facts}
    if number and begun.model is now.model and e.train.memories == "carry":
        now = now._replace(era=era, archive=archive, network=rehearse.state)
        now, more = carried(e, house, t, session, now, True)
        return now, {**facts, **more}, rehearse.bill
    if e.train.memories != "keep":
        house.engine.memory.clear()
    server = e.algorithm.restart(now.server, begun.model.x, house.context)
    now = State(server, begun.model, era, archive, rehearse.state, *arrivals(now, t, session))
    return now, facts, rehearse.bill


def horizon(e: Experiment, session: Session, era: Era) -> int:
    """How many rounds a learning-rate schedule spans: a session, or all that are left of the run.

    Only where every session begins with a start is it known when the next one comes.
    """
    return session.rounds if e.start.trigger.is_steady else e.population.length - era.first


def arrivals(now: State, t: int, session: Session) -> tuple[Ids, Ids]:
    """The clients that exist, sorted, and the round in which each of them came."""
    clients = np.sort(session.clients)
    since = np.full(len(clients), t)
    _, here, before = np.intersect1d(clients, now.present, assume_unique=True, return_indices=True)
    since[here] = np.where(now.since[before] == GONE, t, now.since[before])
    return clients, since


def carried(
    e: Experiment, house: House, t: int, session: Session, now: State, start: bool
) -> tuple[State, Mapping[str, Any]]:
    """The state when the model stays: those who left no longer count, those who came do."""
    if not (start or t == session.first):
        return now, {}
    if not len(session.clients):  # the mean over no clients is none: it stays until some come
        return now._replace(since=np.full_like(now.since, GONE)), {}
    present, since = arrivals(now, t, session)
    left = np.setdiff1d(now.present, present, assume_unique=True)
    came = np.setdiff1d(present, now.present, assume_unique=True)
    now_ = now._replace(present=present, since=since)
    if not (start or len(left) or len(came)):
        return now_, {}
    if e.algorithm.has_own("row") and not e.gate.keeps_sums:
        house.engine.memory.clear()
        server = e.algorithm.init(now.model.x, house.context)
        return now_._replace(server=server), {"memories": "anew"}
    server = recounted(e, house, now.server, present, len(now.present), left, came, start)
    return now_._replace(server=server), {}


def recounted(
    e: Experiment,
    house: House,
    server: Any,
    present: Ids,
    before: int,
    left: Ids,
    came: Ids,
    start: bool = False,
) -> Any:
    """The server's state without the rows of those who left and with those of the clients that came."""
    down, engine = e.algorithm.broadcast(server), house.engine
    gone, back = (engine.row_sum(e.algorithm, ids, down) for ids in (left, came))
    here = torch.from_numpy(present).to(house.initial.x.device)
    return e.algorithm.changed(server, Change(here, before, gone, back, start))


def remembered(e: Experiment, house: House, now: State, sent: Result, passed: Ids) -> State:
    """After a round: clients whose uploads passed remember it, and the server knows who had forgotten."""
    forgot = np.intersect1d(sent.forgot, passed)
    if len(forgot) and e.algorithm.has_own("row"):
        count = len(now.present)
        server = recounted(e, house, now.server, now.present, count, forgot, forgot[:0])
        now = now._replace(server=server)
    house.engine.keep(sent, e.gate.remembering(sent.ids, passed))
    return now
