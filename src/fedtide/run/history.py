"""What a run returns."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from fedtide.core.layout import Layout
from fedtide.core.types import Dataset, Model
from fedtide.measure.metrics import Metric, metrics
from fedtide.measure.scale import Scale
from fedtide.measure.windows import evaluated
from fedtide.models.base import MadeFor
from fedtide.record.archive import StoredArchive, write_archive
from fedtide.record.line import Line
from fedtide.record.model import described_model, filled
from fedtide.run.experiment import Experiment
from fedtide.show.notebook import card, figure, frame

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


@dataclass(frozen=True, eq=False)
class History:
    """The result of a run: the journal's lines and the final model."""

    experiment: Experiment
    rounds: list[Line]
    model: Model
    layout: Layout  # where each parameter lies in model.x
    engine: str  # which engine ran, and why
    sample: Dataset  # the first example of each part of the data, as it is stored
    made_for: MadeFor  # what the model was built for
    stored: StoredArchive  # the models of the run's sessions, as far as its start keeps them

    def module(self) -> nn.Module:
        """The final model as a module of its own, in evaluation mode."""
        e = self.experiment
        module = copy.deepcopy(e.train.module(self.made_for, e.seed))
        values = {**self.layout.unpack(self.model.x), **self.model.buffers}
        return filled(module, values, "history.module()")

    def save_archive(self, folder: str | Path) -> None:
        """Write the models of the sessions into a folder, for the setting `start.archive` of a later run."""
        write_archive(Path(folder), self.stored, self.layout)

    def about_model(self) -> dict[str, Any]:
        """What the final model's file says about it, as JSON."""
        tested = evaluated(self.rounds, self.scale)
        score = {"name": self.scale.name, "value": tested[-1].score} if tested else None
        e = self.experiment
        told = described_model(e.train.model, self.made_for, self.sample)
        return {**told, "seed": e.seed, "rounds": len(self.rounds), "score": score}

    def metrics(self, transition_rounds: int = 10) -> dict[str, Metric]:
        """The score, the score after transitions, time: see `fedtide.measure.metrics`."""
        return metrics(self.rounds, transition_rounds, self.scale)

    @property
    def scale(self) -> Scale:
        """The score of the task."""
        return self.experiment.scale

    def to_pandas(self) -> DataFrame:
        """One row per round, one column per number of the journal."""
        return frame([({}, self.rounds)])

    def plot(self) -> Figure:
        """Score and loss on the test set over the rounds, as a Plotly figure."""
        return figure(self.rounds, self.scale)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card(type(self.experiment.algorithm).__name__, self.engine, self.rounds, self.scale)
