"""What a run returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedtide.core.layout import Layout
from fedtide.core.types import Model
from fedtide.measure.metrics import Metric, metrics
from fedtide.record.line import Line
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

    def metrics(self, transition_rounds: int = 10) -> dict[str, Metric]:
        """Accuracy, accuracy after transitions, time: see `fedtide.measure.metrics`."""
        return metrics(self.rounds, transition_rounds)

    def to_pandas(self) -> DataFrame:
        """One row per round, one column per number of the journal."""
        return frame([({}, self.rounds)])

    def plot(self) -> Figure:
        """Test accuracy and loss over the rounds, as a Plotly figure."""
        return figure(self.rounds)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return card(type(self.experiment.algorithm).__name__, self.engine, self.rounds)
