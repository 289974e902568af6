"""The [engine] section of a study: which engine trains the clients, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch

from fedtide.core.errors import EngineError, require
from fedtide.core.kinds import Kinds
from fedtide.core.machine import cpu_count
from fedtide.data.batches import ClientData
from fedtide.engines.base import Engine, InProcess, Traits
from fedtide.engines.loop import Loop
from fedtide.engines.trial import (
    compiling_problem,
    is_chain,
    model_traits,
    require_fit,
    stacking_error,
)
from fedtide.engines.vectorised import Vectorised
from fedtide.tasks.task import Task
from fedtide.training.memory import MemoryOnDisk
from fedtide.training.messages import AnyAlgorithm
from fedtide.training.train import Train

# Multiplications for one batch: for less, loading the compiler takes too long.
WORTH_COMPILING = 100_000


@dataclass(frozen=True, kw_only=True)
class FlowerSettings:
    """The [engine.flower] table: how a server waits for real clients. Every wait has an end.

    With `enough` below 1 a cohort is drawn larger than needed (over-selection).
    """

    deadline: float = 60.0  # seconds for the replies of a round; later ones are dropped and counted
    enough: float = 1.0  # share of the cohort whose replies end a round
    minimum: int = 1  # replies without which a round changes nothing
    misses: int = 1  # missed deadlines in a row after which a silent client has left
    wait: float = 60.0  # seconds to wait, before a round, for so many clients as are the minimum
    tests: Literal["auto", "server", "clients"] = "auto"  # who tests; auto: the server, if it can

    def __post_init__(self) -> None:
        where = "engine.flower"
        require(self.deadline > 0, f"{where}.deadline", "positive", self.deadline)
        require(0 < self.enough <= 1, f"{where}.enough", "a share in (0, 1]", self.enough)
        require(self.minimum >= 1, f"{where}.minimum", "at least 1", self.minimum)
        require(self.misses >= 1, f"{where}.misses", "at least 1", self.misses)
        require(self.wait >= 0, f"{where}.wait", "zero or positive", self.wait)


@dataclass(frozen=True, kw_only=True)
class EngineSettings(ABC):
    """The settings of one kind of engine; `build` makes the engine."""

    # A setting of another kind is accepted with a warning: `--set engine.kind=loop` on a Ray study.
    forgives: ClassVar[bool] = True
    is_real: ClassVar[bool] = False  # are clients real devices, and not simulated?
    has_processes: ClassVar[bool] = False  # does it spread clients over processes of its own?

    workers: int = 0  # threads across clients; 0: one per core
    device: str = "auto"  # auto, cpu, cuda, mps
    flower: FlowerSettings = field(default_factory=FlowerSettings)  # for `fedtide deploy`

    def __post_init__(self) -> None:
        require(self.workers >= 0, "engine.workers", "zero or positive", self.workers)

    @property
    def adds(self) -> bool:
        """May uploads be added up where they are made, if nothing looks at single ones?"""
        return True

    def with_workers(self, workers: int) -> Self:
        """These settings with the given number of threads, unless the study sets `workers` itself."""
        return replace(self, workers=self.workers or workers)

    def place(self) -> torch.device:
        """The device to compute on."""
        if self.device == "auto":
            accelerator = torch.accelerator.current_accelerator(check_available=True)
            return torch.device("cpu") if accelerator is None else accelerator
        try:
            device = torch.empty(0, device=self.device).device
        except (
            RuntimeError,
            AssertionError,
        ) as error:  # torch's words for a device that is not here
            raise EngineError(
                f"engine.device must be a device of this machine. Got {self.device!r}. "
                "Use 'cpu', or 'auto' for the best there is."
            ) from error
        require(device.type != "meta", "engine.device", "one that computes", self.device)
        return device

    @abstractmethod
    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        """The engine for this task, these clients and this algorithm."""


@dataclass(frozen=True, kw_only=True)
class InProcessSettings(EngineSettings):
    """An engine whose clients live in this process."""

    memory: Literal["ram", "disk"] = "ram"  # where rows of clients that took part are kept

    def made(
        self,
        kind: type[InProcess],
        why: str,
        task: Task,
        data: ClientData,
        train: Train,
        traits: Traits,
    ) -> InProcess:
        """An engine of this kind with these settings."""
        workers, chunk = self.workers or cpu_count(), getattr(self, "chunk", 0)
        engine = kind(task, data, traits, train.buffers, workers, chunk, why)
        if self.memory == "disk":
            engine.memory = MemoryOnDisk()
        return engine


@dataclass(frozen=True, kw_only=True)
class LoopSettings(InProcessSettings):
    """One client after the other, or a few at once on threads."""

    engine: ClassVar[type[InProcess]] = Loop

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        traits = model_traits(task, data.examples)
        why = f"{self.engine.__name__.lower()}: as the study asks"
        return self.made(self.engine, why, task, data, train, traits)


@dataclass(frozen=True, kw_only=True)
class StackedSettings(InProcessSettings):
    """The settings of an engine that may train many clients at once, as one stack of tensors."""

    chunk: int = 0  # clients stacked at once; 0: by memory

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.chunk >= 0, "engine.chunk", "zero or positive", self.chunk)


@dataclass(frozen=True, kw_only=True)
class VectorisedSettings(StackedSettings):
    """Many clients at once, stacked."""

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        kind, traits = named("vectorised", task, data, train, algorithm)
        return self.made(kind, "vectorised: as the study asks", task, data, train, traits)


@dataclass(frozen=True, kw_only=True)
class CompiledSettings(StackedSettings):
    """Linear models and MLPs in compiled code, on a CPU; needs fedtide[fast]."""

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        kind, traits = named("compiled", task, data, train, algorithm)
        return self.made(kind, "compiled: as the study asks", task, data, train, traits)


@dataclass(frozen=True, kw_only=True)
class AutoSettings(StackedSettings):
    """The fastest of loop, vectorised and compiled that can train this model with this algorithm."""

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        kind, why, traits = fastest(task, data, train, algorithm)
        why = f"{kind.__name__.lower()}: {why}"
        return self.made(kind, why, task, data, train, traits)


@dataclass(frozen=True, kw_only=True)
class RaySettings(EngineSettings):
    """Clients in the processes of a Ray cluster, here or on many machines; needs fedtide[ray]."""

    has_processes: ClassVar[bool] = True

    of: Literal["auto", "loop", "vectorised", "compiled"] = "auto"  # the engine inside every actor
    chunk: int = 0  # clients stacked at once; 0: by memory
    actors: int = 2  # processes that share the clients; each has `workers` threads, or one
    gpus: float = 0.0  # of each actor, or a part of one
    lost: Literal["redo", "count"] = "redo"  # the work of an actor that dies
    uploads: Literal["stacked", "sums"] = "stacked"  # sums are added up by the actors

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.chunk >= 0, "engine.chunk", "zero or positive", self.chunk)
        require(self.actors >= 1, "engine.actors", "at least 1", self.actors)
        require(self.gpus >= 0, "engine.gpus", "zero or positive", self.gpus)
        do = "Give the actors GPUs with engine.gpus."
        here = self.device in ("auto", "cpu")
        require(here, "engine.device", "'auto' or 'cpu' with kind = 'ray'", self.device, do)
        do = "Weights of a sum are fixed before the round."
        redo = self.uploads == "stacked" or self.lost == "redo"
        require(redo, "engine.uploads", "'stacked' unless lost = 'redo'", self.uploads, do)

    @property
    def adds(self) -> bool:
        return self.uploads == "sums"

    @property
    def cpus(self) -> int:
        """CPUs that all actors take."""
        return self.actors * (self.workers or 1)

    def with_workers(self, workers: int) -> Self:
        return self

    def place(self) -> torch.device:
        """The server's device; actors have their own."""
        return torch.device("cpu")

    def build(self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm) -> Engine:
        with ray_needed("engine.kind = 'ray'"):
            from fedtide.engines.ray.engine import Ray, Spread
        kind, why, traits = self._inner(task, data, train, algorithm)
        spread = Spread(kind, self.actors, self.workers or 1, self.gpus, self.lost)
        why = f"ray: {self.actors} actors, each {kind.__name__.lower()}: {why}"
        return Ray(task, data, traits, train.buffers, cpu_count(), self.chunk, why, spread)

    def _inner(
        self, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm
    ) -> tuple[type[InProcess], str, Traits]:
        """The engine inside the actors, why, and what is known of the model."""
        if self.of == "auto":
            return fastest(task, data, train, algorithm, on_gpu=self.gpus > 0)
        kind, traits = named(self.of, task, data, train, algorithm)
        return kind, "as the study asks", traits


def named(
    kind: str, task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm
) -> tuple[type[InProcess], Traits]:
    """The engine of this name, if it can do the work, and what is known of the model."""
    traits = model_traits(task, data.examples)
    if kind == "loop":
        return Loop, traits
    if kind == "compiled":
        require_fit(task, kind, compiling_problem(task, data))
    engine = compiled_engine() if kind == "compiled" else Vectorised
    require_fit(task, kind, stacking_error(engine, task, data, traits, train, algorithm))
    return engine, traits


def fastest(
    task: Task, data: ClientData, train: Train, algorithm: AnyAlgorithm, on_gpu: bool = False
) -> tuple[type[InProcess], str, Traits]:
    """The fastest engine in one process that can do the work, why, and what is known of the model."""
    traits = model_traits(task, data.examples)
    on_cpu = data.examples.device.type == "cpu" and not on_gpu
    if task.has_convolutions and on_cpu:
        # Not tried: torch takes seconds to prepare for its first vmap.
        return Loop, "on a CPU, stacked convolutions are slower than one client at a time", traits
    kind, why = _stacked(task, data, on_cpu)
    if error := stacking_error(kind, task, data, traits, train, algorithm):
        return Loop, f"{task.name} cannot be vectorised: {error}", traits
    return kind, why, traits


def _stacked(task: Task, data: ClientData, on_cpu: bool) -> tuple[type[Vectorised], str]:
    """The faster of the two engines that stack clients, and why."""
    stacks = f"{task.name} can be stacked over clients"
    if not on_cpu or not is_chain(task):
        return Vectorised, stacks
    if task.layout.dim * data.batching.batch_size < WORTH_COMPILING:
        return Vectorised, f"{stacks}, and is too small to be worth compiling"
    if problem := compiling_problem(task, data):
        return Vectorised, f"{stacks}, but not compiled: {problem}"
    return compiled_engine(), f"{task.name} is a chain of linear layers"


def compiled_engine() -> type[Vectorised]:
    """The compiled engine; imported late, because numba takes half a second."""
    from fedtide.engines.compiled import Compiled

    return Compiled


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


def shared(engines: Iterable[EngineSettings]) -> AbstractContextManager[None]:
    """What runs with these engines share, one after the other: a connection to Ray, and its actors."""
    cpus = [engine.cpus for engine in engines if isinstance(engine, RaySettings)]
    if not cpus:
        return nullcontext()
    from fedtide.engines.ray.pool import connected

    return connected(max(cpu_count(), *cpus))


ENGINES = Kinds(
    "engines",
    EngineSettings,
    {
        "auto": AutoSettings,
        "loop": LoopSettings,
        "vectorised": VectorisedSettings,
        "compiled": CompiledSettings,
        "ray": RaySettings,
    },
    usual="auto",
)
