"""Before a study runs: what is wrong with it, and what its user should know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide.core.errors import memory_explained
from fedtide.core.types import Crowd, Round
from fedtide.measure.cautions import MANY_EMPTY
from fedtide.run.experiment import Experiment
from fedtide.run.round import draw
from fedtide.run.world import World
from fedtide.training.explain import explained

MOST_ROUNDS, MOST_DRAWS = 1000, 10**6  # that are drawn beforehand: rounds, and clients x rounds

Settings = Sequence[tuple[str, Experiment]]  # the cells of a study by their names, with one seed


def preflight(settings: Settings) -> list[str]:
    """Load the data and build the models once, so that mistakes show before anything is written.

    Returns what a user should know before the study runs.
    """
    seen: list[Any] = []
    told = []
    for label, e in settings:
        parts = (e.data, e.population, e.train, e.engine, e.participation, e.privacy)
        if parts not in seen:
            seen.append(parts)
            with (
                memory_explained(),
                explained("check before the run", 0),
                World.build(e) as world,
            ):
                e.network.start(world.crowd.clients, e.seed)
                told += drawn_cautions(e, world.crowd, label)
    return told


def foreseen(settings: Settings) -> list[str]:
    """What `preflight` finds, as far as the data are on this machine."""
    return preflight([(label, e) for label, e in settings if e.data.is_here])


def pilot_cautions(e: Experiment, sessions: int, label: str) -> list[str]:
    """A sentence if the pilot sessions are the whole run, so that the start makes no difference."""
    if not e.population.announced or e.start.pilots < sessions:
        return []
    return [
        f"The start makes no difference ({label}): its pilot has P = {e.start.P} sessions, the "
        f"population {sessions}. Use a population whose clients change, or start = 'previous'."
    ]


def drawn_cautions(e: Experiment, crowd: Crowd, label: str) -> list[str]:
    """Check the participation of every session and draw cohorts; a sentence if many rounds have none."""
    sessions = list(e.sessions())
    for session in sessions:
        e.participation.check_session(session)
    told = pilot_cautions(e, len(sessions), label)
    rounds = 1
    if e.participation.foresees and e.population.announced:
        most = min(MOST_ROUNDS, MOST_DRAWS // crowd.clients)
        rounds = min(e.population.length, max(1, most))
    who, empty = e.participation.start(crowd, e.seed), 0
    for t in range(rounds):
        ids, _ = draw(e, e.population.at(t, e.seed), t, who)
        if e.participation.foresees:
            who = e.participation.observe(who, Round(t, ids, {}))
        empty += not len(ids)
    if rounds == 1 or empty / rounds < MANY_EMPTY:
        return told
    return [
        *told,
        f"No client will take part in {empty} of the first {rounds} rounds ({label}, seed {e.seed}); the "
        "model stands still there. Use more clients, or let them be there more often.",
    ]
