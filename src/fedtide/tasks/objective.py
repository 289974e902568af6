"""The [task] section of a study: what is learned, with which loss and which scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedtide.core.errors import ConfigError, require
from fedtide.core.kinds import settle
from fedtide.core.types import Dataset, Scores
from fedtide.tasks.losses import LOSSES, Loss
from fedtide.tasks.named import SCORES
from fedtide.tasks.scores import (
    Accuracy,
    Form,
    MeanLoss,
    Meter,
    Score,
    Sums,
    computed,
)


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """What is learned. A batch's loss is the sum of its examples' losses over the sum of their weights."""

    form: ClassVar[Form]  # of answers, for scores

    loss: Loss
    metrics: tuple[Score, ...] = ()  # the first one is the score; empty: that of the task

    def __post_init__(self) -> None:
        given: Any = self.loss
        if not isinstance(given, Loss) and (adopted := Loss.adopt(given, {})):
            object.__setattr__(self, "loss", adopted)
        settle(self, "task.loss", "loss", Loss, LOSSES)
        object.__setattr__(self, "metrics", tuple(self._score(each) for each in self.metrics))
        names = [score.name for score in self.metrics]
        require(len(set(names)) == len(names), "task.metrics", "without repetition", names)

    def _score(self, given: Any) -> Score:
        """A score as Python gives it: an object, a name or a function."""
        if isinstance(given, str) and given in SCORES:
            given = SCORES[given]()
        score = given if isinstance(given, Score) else Score.adopt(given, {})
        known: dict[str, Any] = dict(SCORES)
        fitting = sorted(name for name, kind in known.items() if self.form in kind.forms)
        do = f"Use some of {', '.join(fitting)}, a metric of torchmetrics, or a function."
        must = "scores, by name or from Python"
        got = given if isinstance(given, str) else type(given).__name__
        require(score is not None, "task.metrics", must, got, do)
        assert score is not None
        must = f"scores for answers of the form {self.form!r}"
        require(self.form in score.forms, "task.metrics", must, score.name, do)
        return score

    @property
    def is_plain(self) -> bool:
        """Is it classification with cross entropy, and nothing else? Fast paths compute that."""
        return False

    @property
    def is_weighted(self) -> bool:
        """Do examples count differently? Then `weight` says how much."""
        return self.loss.is_weighted

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example: [B]."""
        return self.loss(outputs, targets)

    def weight(self, targets: Tensor) -> Tensor:
        """How much each example counts: [B]."""
        return self.loss.weight(targets)

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Whether the answer for each example is right, [B]; None where answers are not right or wrong."""
        return None

    @property
    def has_labels(self) -> bool:
        """Is each target one label, with an output of the model for each label?"""
        return False

    @property
    def has_answers(self) -> bool:
        """Are answers right or wrong? Then there is an accuracy, and the credit of training is that."""
        return type(self).right is not Objective.right

    def credit(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """What each example says about training [B], more is better: right or wrong, else minus the loss."""
        right = self.right(outputs, targets)
        if right is not None:
            return right
        if self.is_weighted:
            weight = self.weight(targets)
            losses = losses / torch.where(weight > 0, weight, 1)
        return -losses

    @property
    def scores(self) -> tuple[Score, ...]:
        """What a model is judged by, the score first."""
        return self.metrics or (Accuracy() if self.has_answers else MeanLoss(),)

    @abstractmethod
    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets as scores take them: probabilities and labels, or numbers."""

    @property
    def has_meters(self) -> bool:
        """Is there a score that must see all answers?"""
        return not all(score.is_mean for score in self.metrics)

    def sums(self, outputs: Tensor, targets: Tensor) -> Sums:
        """Sums over these examples, for scores."""
        right = self.right(outputs, targets)
        return Sums(
            loss=float(self.losses(outputs, targets).sum()),
            right=0.0 if right is None else float(right.sum()),
            weight=float(self.weight(targets).sum()) if self.is_weighted else float(len(targets)),
            examples=len(targets),
        )

    def scored(self, sums: Sums, meters: Meters | None = None) -> Scores:
        """The scores of the examples that these sums are over and that the meters have seen."""
        accuracy = sums.accuracy if self.has_answers else None
        found = {
            score.name: score.of(sums) if score.is_mean or meters is None else meters.value(score)
            for score in self.scores
        }
        named = found if self.metrics else {}
        return Scores(next(iter(found.values())), sums.mean_loss, accuracy, named)

    @abstractmethod
    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        """How far the student's outputs are from the teacher's, for each example [B]."""

    def outputs(self, dataset: Dataset) -> int:
        """How many outputs a model for this dataset is built with: one for each number of a target."""
        return dataset.train.targets.shape[1:].numel()

    @abstractmethod
    def check_targets(self, dataset: Dataset) -> None:
        """Raise a `ConfigError` unless the targets of a dataset can be learned."""

    @abstractmethod
    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        """Raise a `ConfigError` unless a model's outputs for two examples fit the targets."""

    def check_metrics(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise a `ConfigError` if a score cannot be computed from the answers for a few test examples."""
        for score in (score for score in self.metrics if not score.is_mean):
            meters = Meters(replace(self, metrics=(score,)))
            try:
                meters.update(outputs, targets)
                meters.value(score)
            except ConfigError:
                raise
            except Exception as error:  # of a user's function, or of torchmetrics
                said = str(error).strip().partition("\n")[0]
                raise ConfigError(
                    f"task.metrics: {score.name} must work with outputs of shape {list(outputs.shape[1:])} "
                    f"for each example. Got {type(error).__name__}: {said}. Correct it, or use another."
                ) from error

    def check(self, outputs: Tensor, targets: Tensor, dataset: Dataset, model: str) -> None:
        """Raise a `ConfigError` unless outputs and loss for these targets are of the right shapes."""
        self.check_outputs(outputs, dataset, model)
        shape = tuple(self.losses(outputs, targets).shape)
        require(
            shape == tuple(targets.shape[:1]),
            "task.loss",
            f"one value per example: a tensor of shape {(len(targets),)} for {len(targets)} examples",
            shape,
            'Write reduction="none", as in nn.CrossEntropyLoss(reduction="none").',
        )


class Meters:
    """The meters of an objective: they see all answers on a test set, block by block."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._made: dict[Score, Meter] = {}  # as soon as the number of outputs is known

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """See one more block."""
        objective = self._objective
        count = outputs.shape[-1] if outputs.dim() > 1 else 1
        self._made = self._made or {
            score: score.meter(objective.form, count)
            for score in objective.scores
            if not score.is_mean
        }
        raw = outputs.cpu(), targets.cpu()
        answers = objective.answers(*raw)
        for score, meter in self._made.items():
            meter.update(*(raw if score.takes_outputs else answers))

    def value(self, score: Score) -> float | None:
        """What the score is on all that was seen."""
        return computed(score, self._made[score])
