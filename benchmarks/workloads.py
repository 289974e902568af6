"""The workloads that every framework is given: the same arrays, the same local work. Needs numpy only."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """Every client of a cohort makes one pass over its `steps * batch` examples."""

    model: str  # linear, mlp, cnn28 or cnn32
    shape: tuple[int, ...]  # of one input
    clients: int
    cohort: int
    steps: int
    batch: int
    flops: int  # of one example, forwards and backwards
    parameters: int
    momentum: float = 0.0
    lr: float = 0.05
    classes: int = 10

    @property
    def held(self) -> int:
        """Examples of each client."""
        return self.steps * self.batch

    @property
    def bytes_moved(self) -> int:
        """Bytes that a round must read or write at least once: its examples, its clients' updates."""
        return 4 * self.cohort * (self.held * prod(self.shape) + self.parameters)

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inputs [clients, held, ...] and labels [clients, held]."""
        numbers = np.random.default_rng(0)
        count = (self.clients, self.held)
        inputs = numbers.random((*count, *self.shape), dtype=np.float32)
        return inputs, numbers.integers(self.classes, size=count)

    def cohort_of(self, t: int) -> list[int]:
        """Who takes part in round t."""
        who = np.random.default_rng([1, t]).choice(self.clients, self.cohort, replace=False)
        return sorted(who.tolist())


def _dense(*widths: int) -> tuple[int, int]:
    """FLOPs of an example (the first layer needs no gradient of its inputs) and parameters."""
    sizes = [before * after for before, after in pairwise(widths)]
    return 6 * sum(sizes) - 2 * sizes[0], sum(sizes) + sum(widths[1:])


def _convolutional(
    side: int, kernel: int, channels: tuple[int, ...], *dense: int
) -> tuple[int, int]:
    """The same for convolutions that keep the image's size, each with a 2 x 2 pool."""
    flops = parameters = 0
    for number, (before, after) in enumerate(pairwise(channels)):
        weights = kernel**2 * before * after
        flops += weights * side**2 * (6 if number else 4)
        parameters += weights + after
        side //= 2
    more, rest = _dense(side**2 * channels[-1], *dense)
    return flops + more + 2 * side**2 * channels[-1] * dense[0], parameters + rest


WORKLOADS = {
    "W1": Workload("linear", (784,), 100, 100, 5, 128, *_dense(784, 10), momentum=0.9),
    "W2": Workload("linear", (784,), 100, 10, 5, 32, *_dense(784, 10)),
    "W3": Workload("mlp", (784,), 100, 10, 10, 32, *_dense(784, 200, 200, 10)),
    "W4": Workload(
        "cnn28", (1, 28, 28), 100, 10, 10, 32, *_convolutional(28, 5, (1, 32, 64), 512, 10)
    ),
    "W5": Workload(
        "cnn32", (3, 32, 32), 10, 10, 5, 64, *_convolutional(32, 3, (3, 32, 64, 128), 256, 10)
    ),
}


@cache
def arrays_of(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The arrays of a workload, made once in each process."""
    return WORKLOADS[name].arrays()
