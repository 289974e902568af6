"""The plays of Shakespeare, letter by letter; a client is a play, and the last tenth of each is for tests."""

import os
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np

import fedtide
from fedtide.extend import Dataset


@dataclass(frozen=True, kw_only=True)
class Plays(fedtide.Data):
    """Every second play of $FEDTIDE_DATA/shakespeare/plays_gutenberg.zip: places `half`, half + 2, ..."""

    name: str = "shakespeare"
    half: int = 0
    most: int = 600  # windows of a play
    length: int = 65  # letters of a window

    def load(self) -> Dataset:
        with ZipFile(
            Path(os.environ["FEDTIDE_DATA"], "shakespeare", "plays_gutenberg.zip")
        ) as plays:
            texts = [plays.read(name) for name in sorted(plays.namelist())]
        parts, owners = ([], []), ([], [])
        for client, text in enumerate(text for text in texts[self.half :: 2] if len(text) > 60_000):
            letters = np.minimum(np.frombuffer(text, np.uint8), 127)
            count = min(self.most, len(letters) // self.length)
            windows = letters[: count * self.length].reshape(count, self.length)
            for part, owner, some in zip(
                parts, owners, np.split(windows, [count * 9 // 10]), strict=True
            ):
                part.append(some.astype(np.int64))
                owner += [client] * len(some)
        train, test = (np.concatenate(part) for part in parts)
        keys = {"keys": owners[0], "test_keys": owners[1], "name": self.name}
        return fedtide.from_tensors((train, train), (test, test), **keys)
