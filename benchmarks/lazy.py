"""Peak memory of training on a file that is larger than memory should be: every example is read once a round.

    python benchmarks/lazy.py [gigabytes] [folder]

Writes a file of random pictures, trains on all of them twice with `from_torch(..., lazy=True)`, prints
the peak of the process's own memory, and deletes the file.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import fedtide

SHAPE = (3, 128, 128)
BYTES = 3 * 128 * 128
BLOCK = 2000  # pictures written at once


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Pictures in a file, one after the other; each is read when it is asked for, and mirrored at random."""

    def __init__(self, file: Path, first: int, count: int) -> None:
        self.file, self.first = file, first
        self.targets = np.arange(first, first + count) % 10

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        pixels = np.fromfile(self.file, np.uint8, BYTES, offset=(self.first + place) * BYTES)
        picture = torch.from_numpy(pixels).view(SHAPE)
        return picture.flip(2) if torch.rand(()) < 0.5 else picture, int(self.targets[place])


def write(file: Path, count: int) -> None:
    """Random pictures that are a little brighter the larger their label is."""
    rng = np.random.default_rng(0)
    with file.open("wb") as out:
        for first in range(0, count, BLOCK):
            labels = np.arange(first, min(first + BLOCK, count)) % 10
            noise = rng.integers(0, 200, (len(labels), BYTES), dtype=np.uint8)
            out.write((noise + 5 * labels[:, None].astype(np.uint8)).tobytes())


def main(gigabytes: float, folder: str | None = None) -> None:
    """Write, train, print, delete."""
    count = round(gigabytes * 1e9 / BYTES)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place, "pictures")
        write(file, count)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        tests = count // 100
        data = fedtide.from_torch(
            Pictures(file, 0, count - tests), Pictures(file, count - tests, tests), lazy=True
        )
        began = time.perf_counter()
        history = fedtide.run(
            fedtide.Experiment(
                data=fedtide.Data(name=data),
                population=fedtide.Fixed(clients=100, rounds=2),
                train=fedtide.Train(model="linear", epochs=1, lr=0.0001),
            )
        )
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{os.path.getsize(file) / 1e9:.2f} GB in {count:,} pictures, {history.engine}")
        print(
            f"two rounds over all of them: {seconds:.0f} s; peak {peak:.2f} GB ({before:.2f} GB before)"
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0, *sys.argv[2:3])
