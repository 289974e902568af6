"""Average: begin with the plain mean of the models of all earlier sessions."""

from dataclasses import dataclass

import torch

from fedtide.core.mix import mixed
from fedtide.starts.base import Beginning, Begun, Start


@dataclass(frozen=True, kw_only=True)
class Average(Start):
    """Every earlier session counts the same."""

    def begin(self, known: Beginning) -> Begun:
        if not known.archive:
            return Begun(known.initial, {})
        weights = torch.full((len(known.archive),), 1 / len(known.archive))
        model = mixed([past.model for past in known.archive], weights)
        return Begun(model, {"start_weights": weights.tolist()})
