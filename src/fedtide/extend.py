"""Everything that an author of a method, model, process or probe imports. Files may move; these names stay.

    from fedtide.extend import Algorithm, FedAvg, Wrapper, Probe, Participation

See "Extending FedTide" in the documentation for a running example of every base class.
"""

from fedtide.algorithms.base import (
    Algorithm,
    Change,
    Context,
    Look,
    Survey,
    Teacher,
    stacked,
)
from fedtide.algorithms.fedavg import Averaging, Down, FedAvg, Server, Upload
from fedtide.algorithms.server import ServerRule
from fedtide.algorithms.wrapper import Wrapped, Wrapper
from fedtide.core.errors import ConfigError, EngineError, FedTideError, require
from fedtide.core.layout import Layout
from fedtide.core.mix import even, weighted
from fedtide.core.rng import normals, stream, uniforms
from fedtide.core.types import (
    Batch,
    Buffers,
    Cohort,
    Crowd,
    Dataset,
    Examples,
    Group,
    Ids,
    Inputs,
    Model,
    Nothing,
    Outputs,
    Phases,
    Plan,
    Round,
    Session,
    Vector,
    Walk,
    Work,
)
from fedtide.data.holdings import Holdings, Static
from fedtide.data.partition import Partition
from fedtide.data.source import Data, Source
from fedtide.data.stores import Stores
from fedtide.engines.base import Chunk, Engine, InProcess, Result
from fedtide.engines.kinds import EngineSettings, LoopSettings
from fedtide.engines.loop import Loop
from fedtide.engines.vectorised import Vectorised
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence
from fedtide.measure.probes import Finished, Probe
from fedtide.models.base import EmbedHead, ModelSpec
from fedtide.network.channel import Channel, Moment, Send
from fedtide.network.cost import Computing, Load
from fedtide.network.plan import Network
from fedtide.population.participation import Participation
from fedtide.population.process import Available
from fedtide.population.sessions import Population
from fedtide.show.trackers.base import Logbook, Tracked, Tracker
from fedtide.starts.base import Beginning, Begun, Start
from fedtide.starts.trigger import Era, Situation, Trigger
from fedtide.tasks.losses import Loss
from fedtide.tasks.objective import Objective
from fedtide.tasks.scores import Score, Sums
from fedtide.tasks.task import Task
from fedtide.training.messages import Broadcast, Report, Row
from fedtide.training.optimisers import Rule
from fedtide.training.schedules import Schedule

__all__ = [
    "Algorithm",
    "Attack",
    "Available",
    "Averaging",
    "Batch",
    "Beginning",
    "Begun",
    "Broadcast",
    "Buffers",
    "Change",
    "Channel",
    "Chunk",
    "Cohort",
    "Computing",
    "ConfigError",
    "Context",
    "Crowd",
    "Data",
    "Dataset",
    "Defence",
    "Down",
    "EmbedHead",
    "Engine",
    "EngineError",
    "EngineSettings",
    "Era",
    "Examples",
    "FedAvg",
    "FedTideError",
    "Finished",
    "Group",
    "Holdings",
    "Ids",
    "InProcess",
    "Inputs",
    "Layout",
    "Load",
    "Logbook",
    "Look",
    "Loop",
    "LoopSettings",
    "Loss",
    "Model",
    "ModelSpec",
    "Moment",
    "Network",
    "Nothing",
    "Objective",
    "Outputs",
    "Participation",
    "Partition",
    "Phases",
    "Plan",
    "Population",
    "Probe",
    "Report",
    "Result",
    "Round",
    "Row",
    "Rule",
    "Schedule",
    "Score",
    "Send",
    "Server",
    "ServerRule",
    "Session",
    "Situation",
    "Source",
    "Start",
    "Static",
    "Stores",
    "Sums",
    "Survey",
    "Task",
    "Teacher",
    "Tracked",
    "Tracker",
    "Trigger",
    "Upload",
    "Vector",
    "Vectorised",
    "Walk",
    "Work",
    "Wrapped",
    "Wrapper",
    "even",
    "normals",
    "require",
    "stacked",
    "stream",
    "uniforms",
    "weighted",
]
