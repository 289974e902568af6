"""Every kind that a name may stand for, in study files and from Python, by its base class."""

from __future__ import annotations

from fedtide.algorithms import ALGORITHMS
from fedtide.algorithms.parts.readings import READINGS
from fedtide.algorithms.server import SERVER_RULES
from fedtide.core.kinds import Kinds
from fedtide.data import SOURCES
from fedtide.data.groupings import PARTITIONS
from fedtide.data.stores import STORES
from fedtide.engines.kinds import ENGINES
from fedtide.guard.attacks import ATTACKS
from fedtide.guard.defences import DEFENCES
from fedtide.measure.probes import PROBES
from fedtide.models import MODELS
from fedtide.network import CHANNELS, COMPUTING, NETWORKS
from fedtide.population import POPULATIONS
from fedtide.population.participation import PARTICIPATION
from fedtide.show.trackers import TRACKERS
from fedtide.starts import STARTS, TRIGGERS
from fedtide.starts.archive import RETENTION
from fedtide.tasks.kinds import OBJECTIVES
from fedtide.tasks.losses import LOSSES
from fedtide.tasks.named import SCORES
from fedtide.training.optimisers import RULES
from fedtide.training.schedules import SCHEDULES

KINDS: dict[type, Kinds] = {
    kinds.base: kinds
    for kinds in (
        ALGORITHMS,
        ATTACKS,
        CHANNELS,
        COMPUTING,
        SOURCES,
        DEFENCES,
        ENGINES,
        LOSSES,
        MODELS,
        NETWORKS,
        OBJECTIVES,
        RULES,
        PARTICIPATION,
        PARTITIONS,
        POPULATIONS,
        PROBES,
        READINGS,
        RETENTION,
        SCHEDULES,
        SCORES,
        SERVER_RULES,
        STARTS,
        STORES,
        TRACKERS,
        TRIGGERS,
    )
}
# What `fedtide list` shows, by the names that it and the entry points `fedtide.<room>` use.
ROOMS: dict[str, Kinds] = {kinds.room: kinds for kinds in KINDS.values()}
