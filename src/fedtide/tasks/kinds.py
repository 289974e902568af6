"""The kinds of tasks: labels, numbers, yes or no, several labels, tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.errors import ConfigError, require
from fedtide.core.kinds import Kinds
from fedtide.core.types import Dataset, Examples
from fedtide.tasks.losses import Bce, CrossEntropy, Loss, Mse, like
from fedtide.tasks.objective import Objective
from fedtide.tasks.scores import Perplexity, Score


@dataclass(frozen=True, kw_only=True)
class Classification(Objective):
    """One of several labels: the model has an output for each."""

    form = "multiclass"
    loss: Loss = field(default_factory=CrossEntropy)

    @property
    def has_labels(self) -> bool:
        return True

    @property
    def is_plain(self) -> bool:
        return type(self) is Classification and self.loss == CrossEntropy()

    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.softmax(-1), targets

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).to(outputs.dtype)

    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        p, q = teacher.log_softmax(-1), student.log_softmax(-1)
        return (p.exp() * (p - q)).sum(-1)

    def outputs(self, dataset: Dataset) -> int:
        return dataset.classes

    def check_targets(self, dataset: Dataset) -> None:
        require(
            dataset.classes > 0,
            "task.kind",
            f"one for the targets of {dataset.name!r}, which are not labels, one whole number each",
            "classification",
            "Use 'regression', 'multilabel' or 'tokens'.",
        )

    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        if outputs.dim() != 2 or outputs.shape[1] < dataset.classes:
            raise ConfigError(
                f"train.model must have an output for each of the {dataset.classes} labels of "
                f"{dataset.name!r}. Got outputs of shape {tuple(outputs.shape[1:])} from {model}. "
                "Give the model more outputs or choose another one."
            )
        check_loss(self.loss, outputs.shape[1])


@dataclass(frozen=True, kw_only=True)
class Regression(Objective):
    """Numbers: one or more for each example."""

    form = "regression"
    loss: Loss = field(default_factory=Mse)

    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return like(outputs, targets), targets.to(outputs.dtype)

    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        return self.loss(like(student, targets), like(teacher, targets))

    def check_targets(self, dataset: Dataset) -> None:
        for part, examples in parts(dataset):
            wrong = ~torch.isfinite(examples.targets)
            must = "finite numbers"
            require(not wrong.any(), part, must, first(examples.targets[wrong]))

    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        check_one_each(outputs, dataset.train.targets, dataset, model)


@dataclass(frozen=True, kw_only=True)
class Binary(Objective):
    """Yes or no: targets are 1 and 0, and the model has one output, the logit of a yes."""

    form = "binary"
    loss: Loss = field(default_factory=Bce)

    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return like(outputs, targets).sigmoid(), targets.long()

    def right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((like(outputs, targets) > 0) == (targets > 0.5)).to(outputs.dtype)

    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        return yes_or_no(like(teacher, targets), like(student, targets))

    def check_targets(self, dataset: Dataset) -> None:
        check_yes_or_no(dataset, dimensions=1)

    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        check_one_each(outputs, dataset.train.targets, dataset, model)
        check_loss(self.loss, 1)


@dataclass(frozen=True, kw_only=True)
class Multilabel(Objective):
    """Yes or no for each of several labels: targets are [labels] of 1 and 0, outputs the logits of a yes."""

    form = "multilabel"
    loss: Loss = field(default_factory=Bce)

    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.sigmoid(), targets.long()

    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        return yes_or_no(teacher, student).mean(-1)

    def check_targets(self, dataset: Dataset) -> None:
        check_yes_or_no(dataset, dimensions=2)

    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        check_one_each(outputs, dataset.train.targets, dataset, model)
        check_loss(self.loss, outputs.shape[1])


@dataclass(frozen=True, kw_only=True)
class Tokens(Objective):
    """A token at each place of a sequence: outputs are [places, tokens], targets [places].

    The loss is that of a single token; tokens whose target is `ignore` do not count. With `shift` the
    targets are the sequence itself, and the output at each place predicts the token after it.
    """

    form = "multiclass"
    loss: Loss = field(default_factory=CrossEntropy)
    ignore: int = -100
    shift: bool = False

    @property
    def is_weighted(self) -> bool:
        return True

    @property
    def scores(self) -> tuple[Score, ...]:
        return self.metrics or (Perplexity(),)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum over the counted tokens of each example."""
        outputs, targets, counted = self._counted(outputs, targets)
        each = self.loss(outputs.flatten(0, 1), targets.flatten())
        return (each.view(targets.shape) * counted).sum(1)

    def weight(self, targets: Tensor) -> Tensor:
        """How many tokens of each example count."""
        targets = targets[:, 1:] if self.shift else targets
        counted = targets != self.ignore
        if not self.loss.is_weighted:
            return counted.sum(1)
        each = self.loss.weight(torch.where(counted, targets, 0).flatten())
        return (each.view(targets.shape) * counted).sum(1)

    def divergence(self, teacher: Tensor, student: Tensor, targets: Tensor) -> Tensor:
        p, _, counted = self._counted(teacher.log_softmax(-1), targets)
        q, _, _ = self._counted(student.log_softmax(-1), targets)
        return ((p.exp() * (p - q)).sum(-1) * counted).sum(1)

    def answers(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs, targets, counted = self._counted(outputs, targets)
        return outputs[counted].softmax(-1), targets[counted]

    def _counted(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs [B, T, V], targets [B, T] and which of them count; targets that do not are 0."""
        if self.shift:
            outputs, targets = outputs[:, :-1], targets[:, 1:]
        counted = targets != self.ignore
        return outputs, torch.where(counted, targets, 0), counted

    def outputs(self, dataset: Dataset) -> int:
        return dataset.vocabulary or int(dataset.train.targets.max()) + 1

    def check_targets(self, dataset: Dataset) -> None:
        for part, examples in parts(dataset):
            targets = examples.targets
            whole = not targets.is_floating_point() and targets.dim() == 2
            got = f"{str(targets.dtype).removeprefix('torch.')} {list(targets.shape)}"
            require(whole, part, "whole numbers [examples, places] for task 'tokens'", got)
            counts = bool((targets != self.ignore).any())
            require(
                counts, part, f"tokens, not all of them task.ignore = {self.ignore}", "no others"
            )

    def check_outputs(self, outputs: Tensor, dataset: Dataset, model: str) -> None:
        places = dataset.train.targets.shape[1]
        require(
            outputs.dim() == 3 and outputs.shape[1] == places,
            "train.model",
            f"a module with outputs [{places}, tokens] for each example of {dataset.name!r}",
            f"outputs of shape {list(outputs.shape[1:])} from {model}",
        )
        for part, examples in parts(dataset):
            found = examples.targets[examples.targets != self.ignore]
            wrong = found[(found < 0) | (found >= outputs.shape[2])]
            must = f"tokens below the model's {outputs.shape[2]} outputs, or task.ignore = {self.ignore}"
            require(not len(wrong), part, must, first(wrong))
        check_loss(self.loss, outputs.shape[2])


def yes_or_no(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of each answer, from the logits of a yes."""
    p = teacher.sigmoid()
    entropy = functional.binary_cross_entropy_with_logits(teacher, p, reduction="none")
    return functional.binary_cross_entropy_with_logits(student, p, reduction="none") - entropy


def parts(dataset: Dataset) -> list[tuple[str, Examples]]:
    """The two parts of a dataset by the names of their targets."""
    both = (("training", dataset.train), ("test", dataset.test))
    return [(f"data: {word} targets of {dataset.name!r}", examples) for word, examples in both]


def first(values: Tensor) -> Any:
    """The first of these numbers, for a message; None if there are none."""
    return values.flatten()[0].item() if values.numel() else None


def check_loss(loss: Loss, outputs: int) -> None:
    """Raise a `ConfigError` unless a loss has as many weights as the model has outputs."""
    name = loss.problem(outputs)
    must = f"one number for each of the model's {outputs} outputs"
    got = list(getattr(loss, name)) if name else []
    require(not name, f"task.loss.{name}", must, got)


def check_one_each(outputs: Tensor, targets: Tensor, dataset: Dataset, model: str) -> None:
    """Raise a `ConfigError` unless a model has one output for each number of a target."""
    count = targets.shape[1:].numel()
    require(
        outputs.shape[1:].numel() == count,
        "train.model",
        f"a module with {count} outputs, one for each number of a target of {dataset.name!r}",
        f"outputs of shape {list(outputs.shape[1:])} from {model}",
    )


def check_yes_or_no(dataset: Dataset, dimensions: int) -> None:
    """Raise a `ConfigError` unless targets are 0 and 1 in so many dimensions."""
    for part, examples in parts(dataset):
        targets = examples.targets
        words = "[examples]" if dimensions == 1 else "[examples, labels]"
        require(targets.dim() == dimensions, part, f"of shape {words}", list(targets.shape))
        wrong = targets[(targets != 0) & (targets != 1)]
        require(not len(wrong), part, "0 or 1", first(wrong))


OBJECTIVES = Kinds(
    "tasks",
    Objective,
    {
        "binary": Binary,
        "classification": Classification,
        "multilabel": Multilabel,
        "regression": Regression,
        "tokens": Tokens,
    },
    usual="classification",
)
