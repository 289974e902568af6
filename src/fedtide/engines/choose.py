"""Which engine runs a task: a trial step finds out what the model can do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.func import vmap

from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.core.errors import EngineError, require
from fedtide.core.task import Task
from fedtide.core.trees import repeated, stack
from fedtide.core.types import Batch, Nothing
from fedtide.data.batches import ClientData
from fedtide.engines.base import BufferPolicy, Engine, Traits
from fedtide.engines.client import Lesson, Row, begin, by_transform, local_step
from fedtide.engines.loop import Loop
from fedtide.engines.rules import Sgd
from fedtide.engines.vectorised import Vectorised

ENGINES: dict[str, type[Engine]] = {"loop": Loop, "vectorised": Vectorised}


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The [engine] section of a study."""

    kind: Literal["auto", "loop", "vectorised"] = "auto"
    workers: int = 0  # threads across clients; 0: one per core
    chunk: int = 0  # clients stacked at once; 0: by memory
    device: str = "auto"  # auto, cpu, cuda, mps

    def __post_init__(self) -> None:
        require(self.workers >= 0, "engine.workers", "zero or positive", self.workers)
        require(self.chunk >= 0, "engine.chunk", "zero or positive", self.chunk)

    def place(self) -> torch.device:
        """The device to compute on."""
        if self.device != "auto":
            try:
                return torch.empty(0, device=self.device).device
            except (
                RuntimeError,
                AssertionError,
            ) as error:  # torch's words for a device that is not here
                raise EngineError(
                    f"engine.device must be a device of this machine. Got {self.device!r}. "
                    "Use 'cpu', or 'auto' for the best there is."
                ) from error
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if accelerator is None else accelerator

    def build(self, task: Task, data: ClientData, buffers: BufferPolicy) -> Engine:
        """The engine for this task."""
        traits = _try(task, data)
        kind, why = self._decide(task, traits, data.examples.targets.device)
        if kind == "vectorised" and traits.vmap_error:
            raise EngineError(
                f"engine.kind must be 'loop' for the model {task.name}: it cannot be vectorised "
                f"({traits.vmap_error}). Use engine.kind = 'loop' or 'auto'."
            )
        workers = self.workers or len(os.sched_getaffinity(0))
        return ENGINES[kind](task, data, traits, buffers, workers, self.chunk, f"{kind}: {why}")

    def _decide(self, task: Task, traits: Traits, device: torch.device) -> tuple[str, str]:
        if self.kind != "auto":
            return self.kind, "as the study asks"
        if traits.vmap_error:
            return "loop", f"{task.name} cannot be vectorised: {traits.vmap_error}"
        if device.type == "cpu" and task.has_convolutions:
            return "loop", "on a CPU, stacked convolutions are slower than one client at a time"
        return "vectorised", f"{task.name} can be stacked over clients"


def _try(task: Task, data: ClientData) -> Traits:
    """Train two imagined clients for one step, stacked, on two real examples."""
    examples = data.examples
    inputs, targets = examples.take(torch.arange(2, device=examples.targets.device) % len(examples))
    batch = Batch(inputs, targets, torch.ones(2, device=targets.device))
    x, buffers = task.initial
    with torch.random.fork_rng():
        before = torch.get_rng_state()
        task.train(x, buffers, inputs)
        is_random = not torch.equal(before, torch.get_rng_state())
        algorithm, rule = FedAvg(), Sgd()
        lesson = Lesson(task, algorithm, rule, 0.0, Down(x), buffers)
        state = begin(lesson, Row(Nothing(), Nothing(), {}))
        step = vmap(
            partial(local_step, by_transform, lesson),
            in_dims=(0, 0, None, None),
            randomness="different",
        )
        try:
            step(repeated(state, 2), stack([batch, batch]), Nothing(), 0)
        except RuntimeError as error:  # torch has no other word for "no batching rule"
            return Traits(is_random, str(error).strip().splitlines()[0].rstrip("."))
    return Traits(is_random, "")
