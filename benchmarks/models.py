"""The benchmark's models as plain torch modules, for every framework that takes one."""

from itertools import pairwise

from torch import nn


def build(kind: str, classes: int = 10) -> nn.Module:
    """A fresh model; its first layer takes the workload's inputs as they are."""
    if kind == "linear":
        return nn.Linear(784, classes)
    if kind == "mlp":
        hidden = (nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
        return nn.Sequential(*hidden, nn.Linear(200, classes))
    if kind == "cnn28":
        body = _convolutions(5, 1, 32, 64)
        return nn.Sequential(*body, nn.Linear(7 * 7 * 64, 512), nn.ReLU(), nn.Linear(512, classes))
    body = _convolutions(3, 3, 32, 64, 128)
    return nn.Sequential(*body, nn.Linear(4 * 4 * 128, 256), nn.ReLU(), nn.Linear(256, classes))


def _convolutions(kernel: int, *channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        convolution = nn.Conv2d(before, after, kernel, padding=kernel // 2)
        layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
    return [*layers, nn.Flatten()]
