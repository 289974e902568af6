"""Test scores: how good a model is, and whether more or less of it is better.

Means over examples follow from sums, which real clients can send. Other scores see all answers on the test
set, block by block in a fixed order, through a `Meter`.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from fedtide.core.errors import needs, require

Form = Literal[
    "multiclass", "binary", "multilabel", "regression"
]  # of answers, as torchmetrics names them
LARGEST = 700.0  # of a loss whose exponential is a number


class Sums(NamedTuple):
    """Sums over examples, from which the scores that are means follow."""

    loss: float = 0.0
    right: float = 0.0  # right answers
    weight: float = 0.0  # how much the examples count in the mean of the loss
    examples: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """The sums over both sets of examples."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def mean_loss(self) -> float:
        """The mean loss; not a number where nothing counts."""
        return self.loss / self.weight if self.weight else math.nan

    @property
    def accuracy(self) -> float:
        """The share of right answers; not a number without examples."""
        return self.right / self.examples if self.examples else math.nan


class Meter(Protocol):
    """Sees the answers on a test set, block by block, and says the score; torchmetrics has such objects."""

    def update(self, answers: Tensor, targets: Tensor, /) -> None: ...

    def compute(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """A number that says how good a model is on test examples."""

    forms: ClassVar[tuple[Form, ...]] = ("multiclass", "binary", "multilabel", "regression")
    is_mean: ClassVar[bool] = True  # does it follow from sums over examples?
    takes_outputs: ClassVar[bool] = False  # does its meter see raw outputs, not probabilities?

    @classmethod
    def adopt(cls, found: Any, settings: Mapping[str, Any]) -> Score | None:
        """Make a score from an object of torchmetrics or a user's function; None for anything else."""
        if settings or isinstance(found, type) or not callable(found):
            return None
        if hasattr(found, "update") and hasattr(found, "compute"):
            return ObjectScore(metric=found)
        return FunctionScore(function=found)

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in journal and report."""

    @property
    def larger(self) -> bool:
        """Is more of it better?"""
        return True

    def of(self, sums: Sums) -> float:
        """The score, where it is a mean."""
        raise NotImplementedError

    def meter(self, form: Form, outputs: int) -> Meter:
        """An object that sees all answers, where the score is no mean."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Accuracy(Score):
    """The share of right answers."""

    forms = ("multiclass", "binary")
    name = "accuracy"

    def of(self, sums: Sums) -> float:
        return sums.accuracy


@dataclass(frozen=True, kw_only=True)
class MeanLoss(Score):
    """The mean loss; less is better."""

    name = "loss"
    larger = False

    def of(self, sums: Sums) -> float:
        return sums.mean_loss


@dataclass(frozen=True, kw_only=True)
class Perplexity(Score):
    """The exponential of the mean loss of a token or an example; less is better."""

    forms = ("multiclass",)
    name = "perplexity"
    larger = False

    def of(self, sums: Sums) -> float:
        return math.exp(min(sums.mean_loss, LARGEST))


@dataclass(frozen=True, kw_only=True)
class FunctionScore(Score):
    """A function of all outputs and targets of the test set.

    It may have attributes: `larger = False` if less is better, and a `name`.
    """

    is_mean = False
    takes_outputs = True
    function: Callable[[Tensor, Tensor], Any]

    @property
    def name(self) -> str:
        known = getattr(self.function, "name", getattr(self.function, "__name__", ""))
        return str(known or type(self.function).__name__).replace("_", "-")

    @property
    def larger(self) -> bool:
        return bool(getattr(self.function, "larger", True))

    def meter(self, form: Form, outputs: int) -> Meter:
        return _Collected(self.function)


@dataclass(frozen=True, kw_only=True)
class ObjectScore(Score):
    """A metric of torchmetrics; it sees probabilities, or numbers in a regression."""

    is_mean = False
    metric: Any

    @property
    def name(self) -> str:
        words = re.findall(
            r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|[A-Z]\d+|\d+", type(self.metric).__name__
        )
        return "-".join(words).lower()

    @property
    def larger(self) -> bool:
        larger = getattr(self.metric, "higher_is_better", None)
        do = "Set the attribute `higher_is_better` of the metric to True or False."
        require(larger is not None, "task.metrics", "scores with a known direction", self.name, do)
        return bool(larger)

    def meter(self, form: Form, outputs: int) -> Meter:
        fresh: Meter = copy.deepcopy(self.metric)
        fresh.reset()  # type: ignore[attr-defined]
        return fresh


@dataclass(frozen=True, kw_only=True)
class TorchScore(Score):
    """A metric of torchmetrics by its name; the mean over labels where each label has one."""

    is_mean = False
    metric: ClassVar[str]  # the class in torchmetrics
    settings: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        needs(f"task.metrics = {self.name!r}", "metrics", "torchmetrics")

    def meter(self, form: Form, outputs: int) -> Meter:
        return self.made(form, outputs, **self.settings)

    def made(self, form: Form, outputs: int, **settings: Any) -> Meter:
        """The object of torchmetrics."""
        import torchmetrics

        counts = {"multiclass": {"num_classes": outputs}, "multilabel": {"num_labels": outputs}}
        given: Mapping[str, Any] = (
            {} if form == "regression" else {"task": form, **counts.get(form, {})}
        )
        kind: Callable[..., Meter] = getattr(torchmetrics, self.metric)
        return kind(**given, **settings)


class _Collected:
    """Keeps all outputs and targets for a function of them."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        self.function = function
        self.outputs: list[Tensor] = []
        self.targets: list[Tensor] = []

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.outputs.append(outputs)
        self.targets.append(targets)

    def compute(self) -> Any:
        return self.function(torch.cat(self.outputs), torch.cat(self.targets))


def computed(score: Score, meter: Meter) -> float | None:
    """The number that a meter says; None where it is not defined, as the AUROC of a single label."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about labels that do not occur
        found = meter.compute()
    try:
        value = float(found)
    except (TypeError, ValueError, RuntimeError):
        got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        require(False, f"task.metrics: {score.name}", "one number", got)
        raise
    return value if math.isfinite(value) else None
