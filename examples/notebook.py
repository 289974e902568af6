"""Cell by cell, as in a notebook: your own model, data and algorithm, a table and a picture."""

# %% Your data: torch tensors (from_torch and from_huggingface take datasets)
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedtide import Data, Experiment, Fixed, Train, from_tensors, run
from fedtide.extend import Cohort, FedAvg, Server, Upload

points = torch.randn(2000, 2, generator=torch.Generator().manual_seed(1))
rings = (points.norm(dim=1) > 1.2).long()
data = from_tensors((points[:1600], rings[:1600]), (points[1600:], rings[1600:]))


# %% Your algorithm: the median of the clients' updates, coordinate by coordinate
@dataclass(frozen=True, kw_only=True)
class MedianUpdate(FedAvg):
    """FedAvg with the median in place of the mean, so that a few wrong updates have no effect."""

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        middle: Tensor = up.delta.median(0).values
        return self.follow(server, middle)


# %% Your model, and the run
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
train, crowd = Train(model=model, epochs=3, lr=0.3), Fixed(clients=20, rounds=15)
mine = Experiment(data=Data(name=data), population=crowd, algorithm=MedianUpdate(), train=train)
history = run(mine)

# %% The results: history alone shows a card, plot() a figure, to_pandas() a table
print(history.to_pandas()[["t", "cohort", "accuracy", "loss"]].tail(3))
print(f"{history.plot().layout.title.text}: {history.metrics()['accuracy']:.1%} in the end")
