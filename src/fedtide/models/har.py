"""A network for human activity recognition from inertial sensors; not from a paper.

Made for UCI-HAR (Anguita et al., ESANN 2013): nine channels of 128 time steps, six activities.
"""

from dataclasses import dataclass

from torch import nn

from fedtide.models.base import EmbedHead, ModelSpec, Shape, check_series, width


@dataclass(frozen=True, kw_only=True)
class HarCnn(ModelSpec):
    """Convolutions 32 and 64 over time with pools, FC 128; 274,822 parameters on UCI-HAR."""

    def build(self, shape: Shape, classes: int, vocabulary: int = 0) -> nn.Module:
        check_series("har-cnn", shape, vocabulary, least=4)
        body = nn.Sequential(
            nn.Conv1d(shape[0], 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Flatten(),
        )
        embed = nn.Sequential(body, nn.Linear(width(body, shape), 128), nn.ReLU())
        return EmbedHead(embed, nn.Linear(128, classes))
