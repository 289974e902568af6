"""Which engine runs a task: a trial step finds out what the model can do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, Literal

import torch
from torch.func import vmap

from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.core.errors import EngineError, require
from fedtide.core.trees import repeated, stack
from fedtide.core.types import Batch, Nothing
from fedtide.data.batches import ClientData
from fedtide.engines.base import BufferPolicy, Engine, InProcess, Traits
from fedtide.engines.flower import Terms
from fedtide.engines.loop import Loop
from fedtide.engines.vectorised import Vectorised
from fedtide.tasks.task import Task
from fedtide.training.client import Lesson, Row, begin, by_transform, local_step
from fedtide.training.memory import OnDisk
from fedtide.training.optimisers import Sgd

# Multiplications for one batch: for less, loading the compiler takes too long.
WORTH_COMPILING = 100_000


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The [engine] section of a study."""

    is_real: ClassVar[bool] = False  # are clients somewhere else, and not simulated?
    kind: Literal["auto", "loop", "vectorised", "compiled", "ray"] = "auto"
    workers: int = 0  # threads across clients; 0: one per core
    chunk: int = 0  # clients stacked at once; 0: by memory
    device: str = "auto"  # auto, cpu, cuda, mps
    memory: Literal["ram", "disk"] = "ram"  # where rows of clients that took part are kept
    flower: Terms = field(default_factory=Terms)  # for `fedtide deploy`
    of: Literal["auto", "loop", "vectorised", "compiled"] = "auto"  # ray: inside every actor
    actors: int = 2  # ray: processes that share the clients; each has `workers` threads, or one
    gpus: float = 0.0  # ray: of each actor, or a part of one
    lost: Literal["redo", "count"] = "redo"  # ray: the work of an actor that dies
    uploads: Literal["stacked", "sums"] = "stacked"  # ray: sums are added up by the actors

    def __post_init__(self) -> None:
        require(self.workers >= 0, "engine.workers", "zero or positive", self.workers)
        require(self.chunk >= 0, "engine.chunk", "zero or positive", self.chunk)
        require(self.actors >= 1, "engine.actors", "at least 1", self.actors)
        require(self.gpus >= 0, "engine.gpus", "zero or positive", self.gpus)
        if self.kind == "ray":
            here = self.device in ("auto", "cpu")
            do = "Give the actors GPUs with engine.gpus."
            require(here, "engine.device", "'auto' or 'cpu' with kind = 'ray'", self.device, do)
            ram = self.memory == "ram"
            require(ram, "engine.memory", "'ram' with kind = 'ray'", self.memory)
        if self.uploads == "sums":
            adds = self.kind == "ray" and self.lost == "redo"
            must = "'stacked' unless kind = 'ray' and lost = 'redo'"
            do = "Weights of a sum are fixed before the round."
            require(adds, "engine.uploads", must, self.uploads, do)

    def place(self) -> torch.device:
        """The device to compute on."""
        if self.kind == "ray":
            return torch.device("cpu")  # of the server; actors have their own
        if self.device != "auto":
            try:
                device = torch.empty(0, device=self.device).device
                require(device.type != "meta", "engine.device", "one that computes", self.device)
                return device
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
        asked = self.of if self.kind == "ray" else self.kind
        loops = asked == "loop" or (asked == "auto" and self._is_slow_to_stack(task, data))
        traits = _try(task, data, stacked=not loops)
        kind, why = self._decide(task, data, traits)
        problem = traits.vmap_error if kind == "vectorised" else ""
        if kind == "compiled":
            problem = _uncompiled(task, data)
        if problem:
            raise EngineError(
                f"engine.kind must fit the model {task.name}: it cannot be {kind} ({problem}). "
                "Use engine.kind = 'loop' or 'auto'."
            )
        if self.kind == "ray":
            return self._spread(_engine(kind), task, data, traits, buffers, why)
        workers = self.workers or cpu_count()
        why = f"{kind}: {why}"
        engine = _engine(kind)(task, data, traits, buffers, workers, self.chunk, why)
        if self.memory == "disk":
            engine.memory = OnDisk()
        return engine

    def _spread(
        self,
        kind: type[InProcess],
        task: Task,
        data: ClientData,
        traits: Traits,
        buffers: BufferPolicy,
        why: str,
    ) -> Engine:
        """That engine inside Ray actors."""
        with ray_needed("engine.kind = 'ray'"):
            from fedtide.engines.ray.engine import Ray, Spread
        workers = self.workers or 1
        spread = Spread(kind, self.actors, workers, self.gpus, self.lost)
        why = f"ray: {self.actors} actors, each {kind.__name__.lower()}: {why}"
        return Ray(task, data, traits, buffers, cpu_count(), self.chunk, why, spread)

    def _decide(self, task: Task, data: ClientData, traits: Traits) -> tuple[str, str]:
        kind = self.of if self.kind == "ray" else self.kind
        if kind != "auto":
            return kind, "as the study asks"
        if self._is_slow_to_stack(task, data):
            return "loop", "on a CPU, stacked convolutions are slower than one client at a time"
        if traits.vmap_error:
            return "loop", f"{task.name} cannot be vectorised: {traits.vmap_error}"
        if not self._on_cpu(data) or not task.chain:
            return "vectorised", f"{task.name} can be stacked over clients"
        if task.layout.dim * data.batching.batch_size < WORTH_COMPILING:
            return "vectorised", f"{task.name} can be stacked over clients, and is soon done"
        if problem := _uncompiled(task, data):
            why = f"{task.name} can be stacked over clients, but not compiled: {problem}"
            return "vectorised", why
        return "compiled", f"{task.name} is a chain of linear layers"

    def _is_slow_to_stack(self, task: Task, data: ClientData) -> bool:
        return task.has_convolutions and self._on_cpu(data)

    def _on_cpu(self, data: ClientData) -> bool:
        """Will clients compute on a CPU?"""
        device = data.examples.targets.device
        return device.type == "cpu" and not (self.kind == "ray" and self.gpus)


@contextmanager
def ray_needed(where: str) -> Iterator[None]:
    """Say how to install Ray where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise EngineError(
            f"{where} must find the package ray. Got none. Install it: pip install fedtide[ray]"
        ) from error


def shared(choices: Iterable[EngineChoice]) -> AbstractContextManager[None]:
    """What runs with these engines share, one after the other: a connection to Ray, and its actors."""
    cpus = [choice.actors * (choice.workers or 1) for choice in choices if choice.kind == "ray"]
    if not cpus:
        return nullcontext()
    from fedtide.engines.ray.pool import connected

    return connected(max(cpu_count(), *cpus))


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _try(task: Task, data: ClientData, stacked: bool) -> Traits:
    """Train two imagined clients for one step, stacked, on three real examples."""
    examples = data.examples
    inputs, targets = examples.take(torch.arange(3, device=examples.targets.device) % len(examples))
    x, buffers = task.initial
    with torch.random.fork_rng(), torch.no_grad():
        before = torch.get_rng_state()
        together = task.train(x, buffers, inputs)[0].logits[:2]
        is_random = task.has_dropout or not torch.equal(before, torch.get_rng_state())
        apart = task.train(x, buffers, inputs[:2])[0].logits
        differ = not is_random and not torch.allclose(together, apart, rtol=1e-3)
        mixes = task.has_batch_norm or differ  # a head of zeros would hide it from the outputs
        batch = Batch(inputs, targets, torch.ones(3, device=targets.device))
        # The loop need not know, and torch takes seconds to prepare for its first vmap.
        error = "not tried" if not stacked else "" if task.chain else _vmap_error(task, batch)
        return Traits(is_random, mixes, error)


def _engine(kind: str) -> type[InProcess]:
    if kind == "compiled":
        from fedtide.engines.compiled import Compiled  # with numba, which takes half a second

        return Compiled
    return {"loop": Loop, "vectorised": Vectorised}[kind]


def _uncompiled(task: Task, data: ClientData) -> str:
    """Why this task cannot be compiled; empty if it can."""
    inputs, x = data.examples.inputs, task.initial.x
    if task.chain is None or task.chain[0].inputs != inputs.shape[1:].numel():
        return "it is more than linear layers and ReLUs"
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return f"it computes on {x.device.type} with {x.dtype}"
    if inputs.dtype != x.dtype or data.examples.mean:
        return "its examples are prepared batch by batch"
    if find_spec("numba") is None:
        return "the package numba is missing: pip install fedtide[fast]"
    try:
        import numba  # noqa: F401
    except ImportError as error:  # as with a version of numpy that it does not know
        return f"the package numba does not load: {error}"
    return ""


def _vmap_error(task: Task, batch: Batch) -> str:
    """Why this model cannot be stacked; empty if it can."""
    lesson = Lesson(task, FedAvg(), Sgd(), 0.0, Down(task.initial.x), task.initial.buffers)
    state = begin(lesson, Row(Nothing(), Nothing(), {}))
    step = vmap(
        partial(local_step, by_transform, lesson),
        in_dims=(0, 0, None, None),
        randomness="different",
    )
    try:
        with warnings.catch_warnings():  # torch may go client by client, with a warning (LSTM)
            warnings.filterwarnings("error", message="There is a performance drop")
            step(repeated(state, 2), stack([batch, batch]), Nothing(), 0)
    except (RuntimeError, UserWarning) as error:  # torch has no other words for "no batching rule"
        return str(error).strip().splitlines()[0].rstrip(".")
    return ""
