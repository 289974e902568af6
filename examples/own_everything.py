"""A model, data and an algorithm of your own in one run, without registering them anywhere."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import fedtide
from fedtide.extend import Down, FedAvg, Nothing


@dataclass(frozen=True, kw_only=True)
class Bounded(FedAvg):
    """FedAvg whose clients move back when they are further than `length` from the global model."""

    length: float = 1.0

    def direction(self, grad: Tensor, y: Tensor, k: int, down: Down, mine: Nothing) -> Tensor:
        away = y - down.x
        return torch.where(away.norm() > self.length, away, grad)


def blobs(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points around four corners; the label is the corner."""
    numbers = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=numbers)
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    return corners[labels] + 0.5 * torch.randn(count, 2, generator=numbers), labels


experiment = fedtide.Experiment(
    data=fedtide.Data(name=fedtide.from_tensors(blobs(2000, 1), blobs(500, 2))),
    population=fedtide.Fixed(clients=50, rounds=20),
    participation=fedtide.Uniform(clients=10),
    algorithm=Bounded(length=0.5),
    train=fedtide.Train(
        model=nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4)), epochs=2, lr=0.1
    ),
)

if __name__ == "__main__":
    history = fedtide.run(experiment)
    print(f"{history.engine}; accuracy {history.metrics()['accuracy']:.1%}")
