"""The plays of Shakespeare, letter by letter; a client is a play, whose last tenth is for tests."""

import os
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

import fedtide
from fedtide.extend import Dataset


@dataclass(frozen=True, kw_only=True)
class Plays(fedtide.Data):
    """Every second play of the works, from place `half` on."""

    name: str = "shakespeare"
    half: int = 0
    most: int = 600  # windows of a play
    length: int = 65  # letters of a window

    def load(self) -> Dataset:
        with ZipFile(Path(os.environ["FEDTIDE_DATA"], "shakespeare/plays_gutenberg.zip")) as plays:
            texts = [plays.read(name) for name in sorted(plays.namelist())]
        texts = [text for text in texts[self.half :: 2] if len(text) > 60_000]  # plays, no poems
        parts = [np.concatenate(some) for some in zip(*map(self.windows, texts), strict=True)]
        owners = [np.repeat(np.arange(len(texts)), len(part) // len(texts)) for part in parts]
        return fedtide.from_tensors(
            *((part, part) for part in parts), keys=owners[0], test_keys=owners[1], name=self.name
        )

    def windows(self, text: bytes) -> list[NDArray[np.int64]]:
        """The first windows of a play, nine tenths for training; letters are numbers below 128."""
        letters = np.frombuffer(text, np.uint8)[: self.most * self.length].astype(np.int64)
        return np.split(
            letters.clip(max=127).reshape(self.most, self.length), [self.most * 9 // 10]
        )
