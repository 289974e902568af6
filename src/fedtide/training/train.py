"""The [train] section of a study: what a client does in a round."""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedtide.core.errors import require
from fedtide.core.kinds import settle
from fedtide.core.mix import mixed_buffers
from fedtide.core.rng import torch_seed
from fedtide.core.types import Buffers, Dataset
from fedtide.data.batches import Batching
from fedtide.models import MODELS
from fedtide.models.base import MadeFor, ModelSpec
from fedtide.models.dense import Linear
from fedtide.tasks.kinds import Classification
from fedtide.tasks.objective import Objective
from fedtide.tasks.task import Task
from fedtide.training.optimisers import RULES, Rule, Sgd
from fedtide.training.schedules import SCHEDULES, Constant, Schedule

TRIED = 32  # test examples on which scores are tried before a run
BufferPolicy = Literal["average", "local", "frozen"]


@dataclass(frozen=True, kw_only=True)
class Train(Batching):
    """`model` is a known kind or its name or, from Python, an `nn.Module` of your own.

    What clients and server remember goes on with the model ("carry"): at a start that installs another
    model they begin anew. "reset": they begin anew at every start. "keep": the server does, clients do not.
    """

    model: ModelSpec | nn.Module = field(default_factory=Linear)
    lr: float = 0.1
    optimiser: Rule = field(default_factory=Sgd)
    schedule: Schedule = field(default_factory=Constant)
    buffers: BufferPolicy = "average"  # of BatchNorm, after a round
    memories: Literal["carry", "reset", "keep"] = "carry"  # of clients and server, at a new start

    def __post_init__(self) -> None:
        super().__post_init__()
        if adopted := ModelSpec.adopt(self.model, {}):
            object.__setattr__(self, "model", adopted)
        if not isinstance(self.model, nn.Module):
            settle(self, "train.model", "model", ModelSpec, MODELS)
        settle(self, "train.optimiser", "optimiser", Rule, RULES)
        settle(self, "train.schedule", "schedule", Schedule, SCHEDULES)
        require(math.isfinite(self.lr) and self.lr > 0, "train.lr", "a positive number", self.lr)

    def rate(self, t: int, rounds: int) -> float:
        """The learning rate in round t since the last start, of so many rounds."""
        return self.lr * self.schedule.factor(t, rounds)

    def next_buffers(self, old: Buffers, new: Buffers, share: Tensor) -> Buffers:
        """The global model's buffers after a round, from its old ones and the clients' stacked ones."""
        return old if self.buffers == "frozen" else mixed_buffers(new, share)

    def task(
        self, dataset: Dataset, seed: int, device: torch.device, objective: Objective | None = None
    ) -> Task:
        """The model as a task for this dataset, freshly initialised."""
        objective = objective or Classification()
        objective.check_targets(dataset)
        task = Task(self.module(made_for(dataset, objective), seed).to(device), objective)
        inputs, targets = dataset.train.between(0, 2)
        logits = task.view(*task.initial, inputs).logits
        require(
            isinstance(logits, Tensor),
            "train.model",
            f"a module whose forward returns one tensor, the outputs of {task.name}, or has them as `logits`",
            type(logits).__name__,
            "Return the outputs alone, or wrap the module in one that does.",
        )
        task.objective.check(logits, targets, dataset, task.name)
        inputs, targets = dataset.test.between(0, TRIED)
        if task.objective.has_meters:
            with torch.no_grad():
                task.objective.check_metrics(task.view(*task.initial, inputs).logits, targets)
        return task

    def module(self, wanted: MadeFor, seed: int) -> nn.Module:
        """The model for such data, with its first weights; a module from Python is the user's own."""
        module = self.model
        if isinstance(module, ModelSpec):
            with torch.random.fork_rng():
                torch.manual_seed(torch_seed(seed, "model"))
                module = module.build(*wanted)
        lazy = [name for name, part in module.named_parameters() if is_lazy(part)]
        require(
            not lazy,
            "train.model",
            "a module whose parameters have known shapes",
            f"lazy layers: {', '.join(lazy)}",
            "Call the module once on an example, or use layers that are not lazy.",
        )
        return module


def made_for(dataset: Dataset, objective: Objective) -> MadeFor:
    """What a model for this dataset and task is built for."""
    return MadeFor(dataset.shape, objective.outputs(dataset), dataset.vocabulary)
