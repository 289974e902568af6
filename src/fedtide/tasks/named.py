"""Scores by name, computed by torchmetrics (the extra `metrics`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtide.core.kinds import Kinds
from fedtide.tasks.scores import Accuracy, Form, MeanLoss, Meter, Perplexity, Score, TorchScore

LABELS: tuple[Form, ...] = ("multiclass", "binary", "multilabel")
ONE_LABEL: tuple[Form, ...] = ("multiclass", "binary")
NUMBERS: tuple[Form, ...] = ("regression",)


class _OfSeveral:
    """Not defined for a single example, as a client may have for its own test."""

    def __init__(self, each: Meter) -> None:
        self.each, self.seen = each, 0

    def update(self, answers: Tensor, targets: Tensor) -> None:
        self.seen += len(targets)
        self.each.update(answers, targets)

    def compute(self) -> Any:
        return self.each.compute() if self.seen > 1 else torch.nan


@dataclass(frozen=True, kw_only=True)
class OverLabels(TorchScore):
    """A score of probabilities; its mean is over the labels that some test examples have and others not."""

    def meter(self, form: Form, outputs: int) -> Meter:
        if form == "binary":
            return _MeanOverLabels(self.made(form, outputs), 1)
        return _MeanOverLabels(self.made(form, outputs, average="none"), outputs)


class _MeanOverLabels:
    """torchmetrics counts labels that no example has as 0; they are left out here."""

    def __init__(self, each: Meter, labels: int) -> None:
        self.each, self.labels = each, torch.arange(labels) if labels > 1 else torch.ones(1)
        self.yes, self.no = torch.zeros(labels), torch.zeros(labels)

    def update(self, answers: Tensor, targets: Tensor) -> None:
        has = (targets if targets.dim() == 2 else targets[:, None] == self.labels.to(targets)).cpu()
        self.yes += has.sum(0)
        self.no += (1 - has.long()).sum(0)
        self.each.update(answers, targets)

    def compute(self) -> Any:
        known = (self.yes > 0) & (self.no > 0)
        return self.each.compute().cpu().reshape(-1)[known].mean()


class _Flat:
    """All numbers of all targets count the same; torchmetrics adds up those of a target."""

    def __init__(self, each: Meter) -> None:
        self.each = each

    def update(self, answers: Tensor, targets: Tensor) -> None:
        self.each.update(answers.flatten(), targets.flatten())

    def compute(self) -> Any:
        return self.each.compute()


@dataclass(frozen=True, kw_only=True)
class Auroc(OverLabels):
    """The area under the ROC curve."""

    name, metric, forms = "auroc", "AUROC", LABELS


@dataclass(frozen=True, kw_only=True)
class AveragePrecision(OverLabels):
    """The area under the precision-recall curve."""

    name, metric, forms = "average-precision", "AveragePrecision", LABELS


@dataclass(frozen=True, kw_only=True)
class F1(TorchScore):
    """The F1 score of a yes."""

    name, metric, forms = "f1", "F1Score", ("binary",)


@dataclass(frozen=True, kw_only=True)
class F1Macro(TorchScore):
    """The F1 score, the mean over labels."""

    name, metric, forms = "f1-macro", "F1Score", ("multiclass", "multilabel")
    settings = {"average": "macro"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class F1Micro(TorchScore):
    """The F1 score of all answers together."""

    name, metric, forms = "f1-micro", "F1Score", ("multiclass", "multilabel")
    settings = {"average": "micro"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class F1Weighted(TorchScore):
    """The F1 score, the mean over labels by how often they occur."""

    name, metric, forms = "f1-weighted", "F1Score", ("multiclass", "multilabel")
    settings = {"average": "weighted"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class Precision(TorchScore):
    """The precision of a yes, or the mean over labels."""

    name, metric, forms = "precision", "Precision", LABELS
    settings = {"average": "macro"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class Recall(TorchScore):
    """The recall of a yes, or the mean over labels, which is the balanced accuracy."""

    name, metric, forms = "recall", "Recall", LABELS
    settings = {"average": "macro"}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class Matthews(TorchScore):
    """Matthews' correlation coefficient."""

    name, metric, forms = "matthews", "MatthewsCorrCoef", LABELS


@dataclass(frozen=True, kw_only=True)
class CalibrationError(TorchScore):
    """The expected calibration error in 15 bins; less is better."""

    name, metric, forms, larger = "calibration-error", "CalibrationError", ONE_LABEL, False


@dataclass(frozen=True, kw_only=True)
class ExactMatch(TorchScore):
    """The share of examples with all labels right."""

    name, metric, forms = "exact-match", "ExactMatch", ("multilabel",)


@dataclass(frozen=True, kw_only=True)
class R2(TorchScore):
    """The coefficient of determination, the mean over the numbers of a target."""

    name, metric, forms = "r2", "R2Score", NUMBERS

    def meter(self, form: Form, outputs: int) -> Meter:
        return _OfSeveral(super().meter(form, outputs))


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(TorchScore):
    """The mean squared error; less is better."""

    name, metric, forms, larger = "mse", "MeanSquaredError", NUMBERS, False

    def meter(self, form: Form, outputs: int) -> Meter:
        return _Flat(super().meter(form, outputs))


@dataclass(frozen=True, kw_only=True)
class RootMeanSquaredError(MeanSquaredError):
    """The root of the mean squared error; less is better."""

    name, metric, forms, larger = "rmse", "MeanSquaredError", NUMBERS, False
    settings = {"squared": False}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class MeanAbsoluteError(TorchScore):
    """The mean absolute error; less is better."""

    name, metric, forms, larger = "mae", "MeanAbsoluteError", NUMBERS, False


SCORES = Kinds(
    "scores",
    Score,
    {
        "accuracy": Accuracy,
        "auroc": Auroc,
        "average-precision": AveragePrecision,
        "calibration-error": CalibrationError,
        "exact-match": ExactMatch,
        "f1": F1,
        "f1-macro": F1Macro,
        "f1-micro": F1Micro,
        "f1-weighted": F1Weighted,
        "loss": MeanLoss,
        "mae": MeanAbsoluteError,
        "matthews": Matthews,
        "mse": MeanSquaredError,
        "perplexity": Perplexity,
        "precision": Precision,
        "r2": R2,
        "recall": Recall,
        "rmse": RootMeanSquaredError,
    },
)
