"""The values that pass between the steps of a run. Checkpoints keep `Now`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.types import Ids, Model, Plan, Session, Work
from fedtide.engines.base import NO_CLIENTS, Engine
from fedtide.record.archive import read_archive
from fedtide.run.experiment import Experiment
from fedtide.run.world import World
from fedtide.starts.archive import Archive
from fedtide.starts.trigger import EARLIER, Era
from fedtide.training.explain import check_state, explained

NEVER = -1
GONE = -1  # in `Members.since`: the client does not exist now


class Members(NamedTuple):
    """The clients that the server's state counts, and when each of them came."""

    made: int = 0  # rounds in which the server has aggregated
    present: Ids = NO_CLIENTS  # sorted
    since: Ids = NO_CLIENTS  # `made` when each of them came; GONE in rounds without any client

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

    def among(self, session: Session) -> Members:
        """The members when the clients of a session exist; newcomers came in this round."""
        clients = np.sort(session.clients)
        since = np.full(len(clients), self.made)
        _, here, before = np.intersect1d(
            clients, self.present, assume_unique=True, return_indices=True
        )
        since[here] = np.where(self.since[before] == GONE, self.made, self.since[before])
        return Members(self.made, clients, since)


class Now(NamedTuple):
    """What changes from round to round; what clients remember stays with the engine."""

    server: Any  # the algorithm's state
    model: Model
    era: Era  # since the last start
    archive: Archive
    network: Any  # simulated time and batteries
    who: Any  # the participation's state
    came: NDArray[np.int32]  # [clients]: the round in which each client came last, or NEVER
    members: Members = Members()


def first_state(e: Experiment, world: World) -> Now:
    """The state before the first round."""
    came = np.full(world.crowd.clients, NEVER, dtype=np.int32)
    begun = Now(None, world.initial, Era(), Archive(), None, None, came)
    if e.start.archive:
        stored = read_archive(Path(e.start.archive).expanduser(), world.initial, world.layout)
        begun = begun._replace(
            model=stored.model, era=Era(stored.number, EARLIER), archive=stored.archive
        )
    with explained("start", 0):
        server = e.algorithm.init(begun.model.x, world.context)
        check_state(e.algorithm, "init", server)
        network = e.network.start(world.crowd.clients, e.seed)
        who = e.participation.start(world.crowd, e.seed)
    return begun._replace(server=server, network=network, who=who)


class Asked(NamedTuple):
    """A round before it is trained, in numbers."""

    t: int
    session: Session
    ids: Ids  # the clients that were drawn
    work: Work
    plan: Plan
    lr: float
    facts: Mapping[str, Any]  # for the journal
    bill: Mapping[str, Any]  # what a start made clients do before the round
    purpose: str = (
        "batch"  # "gradient <v>" in gradient rounds; part of the address of random numbers
    )

    @property
    def able(self) -> Ids:
        """The clients that train: they can afford it, and their upload will arrive."""
        return self.ids[self.plan.able]


class Done(NamedTuple):
    """A round after its aggregation, in numbers."""

    ids: Ids  # the clients whose uploads were aggregated
    facts: Mapping[str, Any]  # for the journal


@contextmanager
def memory_aside(engine: Engine) -> Iterator[None]:
    """Use an empty memory inside, and the one from before again afterwards."""
    kept, engine.memory = engine.memory, engine.memory.anew()
    try:
        yield
    finally:
        engine.memory = kept
