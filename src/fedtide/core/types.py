"""The values that pass between the rooms. U is the cohort, K local steps, B the batch size, dim the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Vector = Tensor  # [dim]: a model, a gradient, an update
Buffers = Mapping[str, Tensor]  # what a model keeps outside its vector (BatchNorm statistics)
Ids = NDArray[np.int64]  # client ids


class Nothing(NamedTuple):
    """The state of whoever has none."""


class Outputs(NamedTuple):
    """What a model says about a batch."""

    features: Tensor  # [B, ...]: embed(inputs)
    logits: Tensor  # [B, classes]: head(features)


class Batch(NamedTuple):
    """One local step's examples; rows with mask 0 only fill the shape."""

    inputs: Tensor  # [B, ...]
    targets: Tensor  # [B]
    mask: Tensor  # [B]


class Walk(NamedTuple):
    """How a client moved in one round."""

    steps: Tensor  # local steps made
    lr: Tensor  # learning rate of every step
    weight: Tensor  # how often gradients count in y - x: FedNova's ||a||_1, steps for plain SGD
    age: Tensor  # rounds in which the server has aggregated since the client came


class Training(NamedTuple):
    """What a client saw while training, over all its examples."""

    loss: Tensor
    accuracy: Tensor


class Model(NamedTuple):
    """A whole model: its vector and its buffers."""

    x: Vector
    buffers: Buffers


class Cohort(NamedTuple):
    """The clients whose uploads an aggregation sees, in the order of the stacked uploads."""

    ids: Tensor  # [U]
    share: Tensor  # [U]: n_u / sum of n over the cohort
    walk: Walk  # [U] each
    population: int  # clients that exist now
    t: int  # the round


class Session(NamedTuple):
    """A stretch of rounds with one population."""

    number: int
    clients: Ids  # who exists
    first: int  # its first round
    rounds: int  # how many rounds it lasts


class Crowd(NamedTuple):
    """All clients that ever exist, as a participation process may know them."""

    clients: int
    labels: Callable[
        [], NDArray[np.int64]
    ]  # [clients, classes]: examples of each label, at the start


class Group(NamedTuple):
    """Clients whose data come from the same labels; None stands for all labels."""

    clients: int
    labels: tuple[int, ...] | None = None


class Work(NamedTuple):
    """What a round asks of each client of a cohort, in numbers the network understands."""

    steps: NDArray[np.int64]  # [U]: local steps its data allow
    examples: NDArray[np.int64]  # [U]: examples it holds
    batch_size: int
    bytes_down: int
    bytes_up: int
    parameters: int
    bits_per_example: int = 0  # of a raw input
    flops: Callable[[], float] = lambda: (
        0.0
    )  # of one example, forward and backward; counted if asked
    asked: int = 0  # clients that were asked, if more than come
    hoped: int = 0  # uploads that end the round; 0: those of all who begin
    wait: float = 1.0  # how much longer than usual the server waits


class Phases(NamedTuple):
    """A number for each part of a client's round."""

    down: NDArray[np.float64]  # [U] each
    compute: NDArray[np.float64]
    up: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """The whole round."""
        return self.down + self.compute + self.up


class Plan(NamedTuple):
    """What each client of a cohort can afford, and what that costs."""

    steps: NDArray[np.int64]  # [U]: 0 means it cannot take part this round
    seconds: NDArray[np.float64]  # [U]
    joules: NDArray[np.float64]  # [U]
    delivered: NDArray[np.bool_]  # [U]: did the upload arrive
    deadline: float = np.inf  # seconds after which the server goes on
    hoped: int = 0  # uploads that end the round; 0: those of all who begin
    seconds_by: Phases | None = None
    joules_by: Phases | None = None

    @property
    def able(self) -> NDArray[np.bool_]:
        """Who takes part in the end: clients that make a step and whose upload arrives."""
        return (self.steps > 0) & self.delivered

    @property
    def latency(self) -> float:
        """Seconds until the server goes on: the slowest upload has arrived, or the deadline has come."""
        arrived, hoped = self.able, self.hoped or int((self.steps > 0).sum())
        if arrived.sum() < hoped and np.isfinite(self.deadline):
            return self.deadline
        return float(self.seconds[arrived].max(initial=0.0))


class Round(NamedTuple):
    """A finished round, as processes that listen see it."""

    t: int
    ids: Ids
    facts: Mapping[str, Any]  # its line of the journal


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets; uint8 images become floats in [0, 1], normalised, when taken or `prepared`."""

    inputs: Tensor  # [N, ...]: uint8 images, float features or tokens of any other integer type
    targets: Tensor  # [N]
    mean: tuple[float, ...] = ()  # per channel, of inputs in [0, 1]; empty: not normalised
    std: tuple[float, ...] = ()
    rows: Tensor | None = None  # [N]: where examples share inputs, the row of each; None: its own

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets at `index`, of any shape."""
        return self.inputs_at(index), self.targets[index]

    def inputs_at(self, index: Tensor) -> Tensor:
        """Inputs at `index`, ready for a model."""
        places = index if self.rows is None else self.rows[index]
        # index_select copies whole rows; indexing with [index] goes number by number.
        rows = self.inputs.index_select(0, places.reshape(-1))
        return self.ready(rows.view(*index.shape, *self.inputs.shape[1:]))

    def between(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of neighbours: not copied, if they are ready for a model."""
        span = slice(first, last)
        inputs = self.inputs[span] if self.rows is None else self.inputs[self.rows[span]]
        return self.ready(inputs), self.targets[span]

    def ready(self, inputs: Tensor) -> Tensor:
        """Raw inputs as a model wants them."""
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(torch.get_default_dtype()).div_(255)
        elif not inputs.is_floating_point():
            inputs = inputs.long()  # tokens may be stored in fewer bytes
        if self.mean:
            shape = (len(self.mean),) + (1,) * (self.inputs.dim() - 2)
            mean = torch.tensor(self.mean, device=inputs.device).view(shape)
            std = torch.tensor(self.std, device=inputs.device).view(shape)
            inputs = (inputs - mean).div_(std)
        return inputs

    def some(self, index: Tensor) -> Examples:
        """The examples at `index` [n] alone, with no more inputs than they need."""
        index = index.to(self.targets.device)
        if self.rows is None:
            return replace(self, inputs=self.inputs[index], targets=self.targets[index])
        used, rows = torch.unique(self.rows[index], return_inverse=True)
        return replace(self, inputs=self.inputs[used], targets=self.targets[index], rows=rows)

    def to(self, device: torch.device) -> Examples:
        rows = None if self.rows is None else self.rows.to(device)
        return replace(
            self, inputs=self.inputs.to(device), targets=self.targets.to(device), rows=rows
        )

    def prepared(self, most_bytes: int) -> Examples:
        """These examples ready for a model, once for all, unless that takes too much memory."""
        large = self.inputs.numel() * torch.get_default_dtype().itemsize > most_bytes
        tokens = not (self.inputs.dtype == torch.uint8 or self.inputs.is_floating_point())
        if large or tokens:
            return self
        return replace(self, inputs=self.ready(self.inputs), mean=(), std=())


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset, whole in memory."""

    name: str
    train: Examples
    test: Examples
    classes: int
    keys: NDArray[np.int64] | None = (
        None  # natural owner of each training example (subject, speaker)
    )
    vocabulary: int = 0  # token ids are below this; 0: inputs are not tokens

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    def to(self, device: torch.device) -> Dataset:
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def prepared(self, most_bytes: int) -> Dataset:
        """With examples that are ready for a model, as far as they fit into this much memory each."""
        train, test = (part.prepared(most_bytes) for part in (self.train, self.test))
        return replace(self, train=train, test=test)
