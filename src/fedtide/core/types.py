"""Values that pass between the rooms.

In shapes, U is the size of the cohort, K the number of local steps, B the batch size and dim the number of
the model's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.trees import leaves, size_bytes, tree_map, width

Vector = Tensor  # [dim]: a model, a gradient, an update
Buffers = Mapping[str, Tensor]  # tensors of a model that are not trained (BatchNorm statistics)
Ids = NDArray[np.int64]  # client ids
Inputs = Tensor | Mapping[str, Tensor]  # of a model; a mapping is passed on as keyword arguments


class Nothing(NamedTuple):
    """An empty state: of a client that remembers nothing, or an optimiser without momentum."""


Luck = NDArray[np.int64] | Nothing  # a random number for each example that is taken
NO_LUCK = Nothing()


class Outputs(NamedTuple):
    """A model's features and outputs for a batch."""

    features: Tensor  # [B, ...]: embed(inputs)
    logits: Tensor  # [B, ...]: head(features); of a classifier [B, classes]


class Batch(NamedTuple):
    """The examples of one local step; rows with mask 0 are padding."""

    inputs: Inputs  # [B, ...]
    targets: Tensor  # [B, ...]
    mask: Tensor  # [B]


class Walk(NamedTuple):
    """How a client moved in one round."""

    steps: Tensor  # local steps made
    lr: Tensor  # learning rate of every step
    weight: Tensor  # FedNova's ||a||_1: how much the gradients count in y - x; plain SGD: steps
    age: Tensor  # aggregations of the server since the client joined the population


class Training(NamedTuple):
    """A client's mean loss and credit while it trained, over all examples it used."""

    loss: Tensor
    credit: Tensor  # accuracy, or minus the loss in tasks without right and wrong answers


class Scores(NamedTuple):
    """How good a model is on some examples."""

    score: float | None  # the first metric of the task; None where it is not defined
    loss: float
    accuracy: float | None  # None in tasks without right and wrong answers
    metrics: Mapping[str, float | None] = {}  # those that the task names


class Model(NamedTuple):
    """A model: the vector of its parameters, and its buffers."""

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
    clients: Ids  # the clients that exist
    first: int  # its first round
    rounds: int  # how many rounds it lasts


class Crowd(NamedTuple):
    """All clients that ever exist: what a participation process may know about them."""

    clients: int
    # [clients, classes]: how many examples of each label each client holds at the start.
    labels: Callable[[], NDArray[np.int64]]


class Group(NamedTuple):
    """Clients whose examples have these labels; None stands for all labels."""

    clients: int
    labels: tuple[int, ...] | None = None


class Work(NamedTuple):
    """What a round asks of each client of a cohort: the numbers from which a network computes its costs."""

    steps: NDArray[np.int64]  # [U]: local steps that the client's data allow
    examples: NDArray[np.int64]  # [U]: examples that the client holds
    batch_size: int
    bytes_down: int
    bytes_up: int
    parameters: int
    bits_per_example: int = 0  # of a raw input
    # FLOPs of one example, forward and backward; a function, because counting them takes a moment.
    flops: Callable[[], float] = lambda: 0.0
    asked: int = 0  # clients that were asked to take part, if more than take part
    hoped: int = 0  # uploads that end the round; 0: those of all clients that begin
    wait: float = 1.0  # factor on the time that the server waits


class Phases(NamedTuple):
    """Seconds or joules for each part of a client's round: download, training, upload."""

    down: NDArray[np.float64]  # [U] each
    compute: NDArray[np.float64]
    up: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """The sum over the parts of the round."""
        return self.down + self.compute + self.up


class Plan(NamedTuple):
    """What each client of a cohort can afford, and what that costs."""

    steps: NDArray[np.int64]  # [U]: 0 means that the client does not even begin
    seconds: NDArray[np.float64]  # [U]
    joules: NDArray[np.float64]  # [U]
    delivered: NDArray[np.bool_]  # [U]: does the upload arrive? A client may train in vain.
    deadline: float = np.inf  # seconds after which the server stops waiting
    hoped: int = 0  # uploads that end the round; 0: those of all clients that begin
    seconds_by: Phases | None = None
    joules_by: Phases | None = None

    @property
    def able(self) -> NDArray[np.bool_]:
        """The clients that make at least one step and whose upload arrives."""
        return (self.steps > 0) & self.delivered

    @property
    def latency(self) -> float:
        """Seconds that the round takes: until the slowest upload arrives, or until the deadline."""
        arrived, hoped = self.able, self.hoped or int((self.steps > 0).sum())
        if arrived.sum() < hoped and np.isfinite(self.deadline):
            return self.deadline
        return float(self.seconds[arrived].max(initial=0.0))


class Tested(NamedTuple):
    """Mean losses of models on the examples that clients train on, client by client."""

    ids: Ids  # [U]: the clients that answered, sorted
    losses: NDArray[np.float64]  # [m, U]: of each model
    weight: NDArray[np.float64]  # [U]: examples that each client's means are taken over

    def some(self, ids: Ids) -> Tested:
        """The answers of these clients only."""
        here = np.isin(self.ids, ids)
        return Tested(self.ids[here], self.losses[:, here], self.weight[here])


class Round(NamedTuple):
    """A finished round, as participation processes observe it."""

    t: int
    ids: Ids
    facts: Mapping[str, Any]  # the round's line of the journal

    @property
    def credit(self) -> float | None:
        """The clients' training accuracy, or minus their loss in tasks without right and wrong answers.

        None without a cohort. See `fall`.
        """
        found: float | None = self.facts.get("train_credit", self.facts["train_accuracy"])
        return found


def fall(before: float, now: float) -> float:
    """By how much training credit has fallen; relative to what it was, unless that was a share in [0, 1]."""
    return before - now if 0 <= before <= 1 else (before - now) / abs(before)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets; uint8 images become floats in [0, 1], normalised, when taken or `prepared`."""

    inputs: Inputs  # [N, ...]: uint8 images, float features or tokens of any other integer type
    targets: Tensor  # [N] labels, or [N, ...] numbers of any type
    mean: tuple[float, ...] = ()  # per channel, of inputs in [0, 1]; empty: not normalised
    std: tuple[float, ...] = ()
    rows: Tensor | None = None  # [N]: row of `inputs` of each example, where examples share inputs

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self.targets.device

    @property
    def tensor(self) -> Tensor | None:
        """All inputs, if they are one tensor in memory; None if they have names or are read when needed."""
        return self.inputs if isinstance(self.inputs, Tensor) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input; () where inputs have names."""
        return tuple(self.inputs.shape[1:]) if isinstance(self.inputs, Tensor) else ()

    @property
    def width(self) -> int:
        """How many numbers one input has."""
        return width(self.inputs)

    @property
    def raw_bytes(self) -> int:
        """Bytes of one input as it is stored."""
        return size_bytes(tree_map(lambda leaf: leaf[:1], self.inputs))

    @property
    def stored(self) -> dict[str, Any]:
        """The fields that are tensors in memory."""
        found = {"inputs": self.inputs, "targets": self.targets, "rows": self.rows}
        return {name: part for name, part in found.items() if part is not None}

    @property
    def is_random(self) -> bool:
        """Are inputs drawn anew wherever they are taken with random numbers, as by augmentation?"""
        return False

    def take(self, index: Tensor, luck: Luck = NO_LUCK) -> tuple[Inputs, Tensor]:
        """Inputs and targets at `index`, of any shape."""
        return self.inputs_at(index, luck), self.targets[index]

    def inputs_at(self, index: Tensor, luck: Luck = NO_LUCK) -> Inputs:
        """Inputs at `index`, ready for a model; where they are random, `luck` has a number for each."""
        places = index if self.rows is None else self.rows[index]

        def taken(leaf: Tensor) -> Tensor:
            # index_select copies whole rows, which is faster than indexing with [index].
            found = leaf.index_select(0, places.reshape(-1))
            return found.view(*index.shape, *leaf.shape[1:])

        return self.ready(tree_map(taken, self.inputs))

    def between(self, first: int, last: int) -> tuple[Inputs, Tensor]:
        """Inputs and targets of the examples from `first` to before `last`, as views where possible."""
        span = slice(first, last)
        places = span if self.rows is None else self.rows[span]
        return self.ready(tree_map(lambda leaf: leaf[places], self.inputs)), self.targets[span]

    def ready(self, inputs: Inputs) -> Inputs:
        """Raw inputs as a model takes them: images as normalised floats, tokens as int64."""
        if not isinstance(inputs, Tensor):
            return {name: _numbers(leaf) for name, leaf in inputs.items()}
        inputs = _numbers(inputs)
        if self.mean and self.tensor is not None:
            shape = (len(self.mean),) + (1,) * (self.tensor.dim() - 2)
            mean = torch.tensor(self.mean, device=inputs.device).view(shape)
            std = torch.tensor(self.std, device=inputs.device).view(shape)
            inputs = (inputs - mean).div_(std)
        return inputs

    def as_tests(self) -> Examples:
        """These examples as tests take them: without the augmentation of training."""
        return self

    def checked(self) -> Iterator[Tensor]:
        """The inputs that a checksum is computed of."""
        return leaves(self.inputs)

    def some(self, index: Tensor) -> Examples:
        """Only the examples at `index` [n], with only the inputs that they use."""
        index = index.to(self.targets.device)
        targets, used, rows = self.targets[index], index, None
        if self.rows is not None:
            used, rows = torch.unique(self.rows[index], return_inverse=True)
        inputs = tree_map(lambda leaf: leaf[used], self.inputs)
        return replace(self, inputs=inputs, targets=targets, rows=rows)

    def to(self, device: torch.device) -> Examples:
        rows = None if self.rows is None else self.rows.to(device)
        inputs = tree_map(lambda leaf: leaf.to(device), self.inputs)
        return replace(self, inputs=inputs, targets=self.targets.to(device), rows=rows)

    def prepared(self, most_bytes: int) -> Examples:
        """These examples with inputs ready for a model, unless that takes more than `most_bytes`."""
        inputs = self.tensor
        if inputs is None:
            return self
        large = inputs.numel() * torch.get_default_dtype().itemsize > most_bytes
        tokens = not (inputs.dtype == torch.uint8 or inputs.is_floating_point())
        if large or tokens:
            return self
        return replace(self, inputs=self.ready(inputs), mean=(), std=())


def _numbers(inputs: Tensor) -> Tensor:
    """Raw inputs as numbers that a model computes with."""
    if inputs.dtype == torch.uint8:
        return inputs.to(torch.get_default_dtype()).div_(255)
    if inputs.is_floating_point() or inputs.dtype == torch.bool:
        return inputs
    return inputs.long()  # tokens may be stored in fewer bytes


class OwnTests(NamedTuple):
    """Test examples that belong to single clients."""

    examples: Examples
    clients: NDArray[np.int64]  # [N]: the client of each example, or -1

    def to(self, device: torch.device) -> OwnTests:
        return self._replace(examples=self.examples.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset."""

    name: str
    train: Examples
    test: Examples
    classes: int  # targets are labels below this; 0: they are not labels
    # The natural owner (subject, speaker) of each training example.
    keys: NDArray[np.int64] | None = None
    vocabulary: int = 0  # token ids are below this; 0: inputs are not tokens
    validation: Examples | None = None  # taken from the training data; no client holds them
    test_keys: NDArray[np.int64] | None = None  # the natural owner of each test example
    # When each training example was recorded: its rank in time.
    times: NDArray[np.int64] | None = None
    own: OwnTests | None = None  # test examples of single clients

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input; () where inputs have names."""
        return self.train.shape

    @property
    def labels(self) -> NDArray[np.int64]:
        """The label of each training example; 0 for all where targets are not labels."""
        targets = self.train.targets
        found = targets if self.classes else torch.zeros(len(targets), dtype=torch.int64)
        return found.cpu().numpy()

    def scored_on(self, part: Literal["test", "validation"]) -> Dataset:
        """This dataset with the part that models are scored on as its only test examples."""
        if part == "validation" and self.validation:
            return replace(self, test=self.validation, validation=None, own=None)
        return replace(self, validation=None)

    def to(self, device: torch.device) -> Dataset:
        train, test = self.train.to(device), self.test.to(device)
        return replace(self, train=train, test=test, own=self.own and self.own.to(device))

    def checksum(self) -> str:
        """A checksum of all examples, their targets and owners."""
        found = blake2b(digest_size=16)
        for part in (self.train, self.test):
            rows = [] if part.rows is None else [part.rows]
            if isinstance(part.inputs, Mapping):
                found.update(" ".join(part.inputs).encode())
            for tensor in (*part.checked(), part.targets, *rows):
                array = tensor.detach().cpu().contiguous().numpy()
                found.update(f"{array.dtype}{array.shape}".encode())
                found.update(array.reshape(-1).view(np.uint8).data)
        for about in (self.keys, self.test_keys, self.times):
            if about is not None:
                found.update(np.ascontiguousarray(about).tobytes())
        return found.hexdigest()

    def some(self, count: int) -> Dataset:
        """Only the first `count` examples for training and for tests, without their owners."""
        train, test = (
            part.some(torch.arange(min(count, len(part)))) for part in (self.train, self.test)
        )
        alone: dict[str, Any] = dict.fromkeys(("keys", "validation", "test_keys", "times", "own"))
        return replace(self, train=train, test=test, **alone)

    def prepared(self, most_bytes: int) -> Dataset:
        """With inputs ready for a model, in each part where that takes at most `most_bytes`."""
        train, test = (part.prepared(most_bytes) for part in (self.train, self.test))
        return replace(self, train=train, test=test)
