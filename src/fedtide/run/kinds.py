"""Every kind that a name may stand for, in study files and from Python, by the base that it is a kind of."""

from __future__ import annotations

from collections.abc import Mapping

from fedtide.algorithms import ALGORITHMS
from fedtide.algorithms.base import Algorithm
from fedtide.algorithms.parts.readings import READINGS, Reading
from fedtide.algorithms.server import SERVER_RULES, ServerRule
from fedtide.core.entry_points import Kinds
from fedtide.data.blank import Blank
from fedtide.data.partition import PARTITIONS, Partition
from fedtide.data.source import Data, Source
from fedtide.data.stores import STORES, Stores
from fedtide.data.video import Video
from fedtide.guard.attacks import ATTACKS, Attack
from fedtide.guard.defences import DEFENCES, Defence
from fedtide.models import MODELS
from fedtide.models.base import ModelSpec
from fedtide.network import CHANNELS, COMPUTING, NETWORKS
from fedtide.network.channel import Channel
from fedtide.network.cost import Computing
from fedtide.network.plan import Network
from fedtide.population import POPULATIONS
from fedtide.population.participation import PARTICIPATION, Participation
from fedtide.population.sessions import Population
from fedtide.show.trackers.kinds import TRACKERS, Tracker
from fedtide.starts import STARTS
from fedtide.starts.archive import KEEPS, Keep
from fedtide.starts.base import Start
from fedtide.starts.trigger import TRIGGERS, Trigger
from fedtide.training.optimisers import RULES, Rule
from fedtide.training.schedules import SCHEDULES, Schedule

KINDS: dict[type, Mapping[str, type]] = {
    Algorithm: ALGORITHMS,
    ServerRule: SERVER_RULES,
    Reading: READINGS,
    Source: {"dataset": Data, "video": Video, "blank": Blank},
    Partition: PARTITIONS,
    Stores: STORES,
    Population: POPULATIONS,
    Participation: PARTICIPATION,
    Network: NETWORKS,
    Channel: CHANNELS,
    Computing: COMPUTING,
    Start: STARTS,
    Trigger: TRIGGERS,
    Keep: KEEPS,
    Rule: RULES,
    Schedule: SCHEDULES,
    ModelSpec: MODELS,
    Attack: ATTACKS,
    Defence: DEFENCES,
    Tracker: TRACKERS,
}
# What `fedtide list` calls them; installed packages add to them by the entry point `fedtide.<room>`.
ROOMS: dict[str, type] = {
    "algorithms": Algorithm,
    "attacks": Attack,
    "channels": Channel,
    "data": Source,
    "defences": Defence,
    "models": ModelSpec,
    "networks": Network,
    "optimisers": Rule,
    "participation": Participation,
    "partitions": Partition,
    "populations": Population,
    "schedules": Schedule,
    "server-rules": ServerRule,
    "starts": Start,
    "stores": Stores,
    "trackers": Tracker,
    "triggers": Trigger,
}


def kinds(base: type) -> Mapping[str, type]:
    """The kinds of this base by name: those of the house and those of installed packages."""
    rooms = [room for room, its in ROOMS.items() if its is base]
    return Kinds(rooms[0], base, KINDS[base]) if rooms else KINDS[base]
