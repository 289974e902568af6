"""Channels with recorded throughput.

A trace is text with lines "seconds megabits-per-second"; each value holds until the next line's time. `file`
is one such text, a folder of them, or a zip archive.
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError, require
from fedtide.core.rng import uniforms
from fedtide.core.types import Ids
from fedtide.network.channel import Channel, Moment, Send

Floats = NDArray[np.float64]

LUMOS = "network_traces/lumos5g_sigcomm21.zip"
LARGEST = 2**26  # the most bytes of one trace


class Recording(NamedTuple):
    """One trace as a running total of bits; it repeats after its end."""

    time: Floats  # seconds, from 0
    sent: Floats  # bits sent until then

    def seconds(self, begin: float, bits: float) -> float:
        """The seconds that this many bits take from the time `begin` on."""
        length, total = self.time[-1], self.sent[-1]
        laps, place = divmod(begin, length)
        goal = float(np.interp(place, self.time, self.sent)) + bits
        more, rest = divmod(goal, total)
        # While nothing is sent the total is constant; bits have arrived at the first time with this total.
        index = int(np.searchsorted(self.sent, rest, side="left"))
        if rest and index:
            span, low = self.sent[index] - self.sent[index - 1], self.time[index - 1]
            end = low + (rest - self.sent[index - 1]) / span * (self.time[index] - low)
        else:
            end = 0.0
        return float((laps + more) * length + end - begin)


@dataclass(frozen=True, kw_only=True)
class Traces(Channel):
    """Clients send and receive as fast as recorded phones: client u follows trace u modulo their number.

    By default the 4G and 5G traces of Lumos5G (Narayanan et al., 2020; the archive of SIGCOMM 2021) in
    FEDTIDE_DATA. `only` selects the traces whose name contains it ("4G", "walking"). Every client begins its
    trace at a random time of its own; after its end a trace begins again. A trace records how fast its phone
    received; the client sends at `uplink_share` of that. The study's bandwidth and power are not used.
    """

    file: str = ""
    only: str = ""
    uplink_share: float = 0.1

    def __post_init__(self) -> None:
        share = self.uplink_share
        require(0 < share < np.inf, "network.channel.uplink_share", "positive", share)

    def check(self) -> None:
        self.recordings()

    def recordings(self) -> list[Recording]:
        """The traces; read once, and again if the file has changed."""
        path = Path(self.file or Path(os.environ.get("FEDTIDE_DATA", "")) / LUMOS)
        if not self.file and not os.environ.get("FEDTIDE_DATA"):
            raise DataError(
                "network.channel 'traces' must find its file. Got neither network.channel.file nor "
                f"FEDTIDE_DATA. Set FEDTIDE_DATA to a folder that holds {LUMOS}."
            )
        try:
            stamp = path.stat().st_mtime_ns
        except OSError as error:
            raise DataError(
                f"network.channel.file must be a trace, a folder or a zip of traces. Got {path} "
                f"({error.strerror}). Check the path."
            ) from error
        return _read(path, stamp, self.only)

    def seconds(self, send: Send, ids: Ids, when: Moment) -> Floats:
        known = self.recordings()
        share = self.uplink_share if send.way == "up" else 1.0
        first = uniforms(when.seed, "trace", ids=ids, count=1)[:, 0]
        seconds = np.full(len(ids), np.inf)
        for u, (client, begins) in enumerate(zip(ids.tolist(), send.begins, strict=True)):
            trace = known[client % len(known)]
            if np.isfinite(begins):
                begin = first[u] * trace.time[-1] + when.clock + begins
                seconds[u] = trace.seconds(float(begin), send.bits / share)
        return seconds


@lru_cache(maxsize=4)
def _read(path: Path, stamp: int, only: str) -> list[Recording]:
    found = [_parsed(name, text) for name, text in sorted(_texts(path)) if only in name]
    if not found:
        word = f" with {only!r} in their names" if only else ""
        raise DataError(
            f"{path}: it must hold traces{word}. Got none. Check network.channel.file and only."
        )
    return found


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """The traces in a file, a folder or an archive, with their names."""
    try:
        if path.is_dir():
            for file in path.rglob("*"):
                if file.is_file():
                    _limit(str(file), file.stat().st_size)
                    yield str(file.relative_to(path)), file.read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for entry in archive.infolist():
                    if not entry.is_dir():
                        _limit(f"{path}: {entry.filename}", entry.file_size)
                        yield entry.filename, archive.read(entry)
        else:
            _limit(str(path), path.stat().st_size)
            yield path.name, path.read_bytes()
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: it cannot be read ({error}). Download it again.") from error


def _limit(name: str, size: int) -> None:
    if size > LARGEST:
        raise DataError(f"{name}: a trace must have fewer than {LARGEST:,} bytes. Got {size:,}.")


def _parsed(name: str, text: bytes) -> Recording:
    """A trace as a running total of bits; the last value holds as long as the one before it."""
    rows: list[list[float]] = []
    for number, line in enumerate(text.decode("utf-8", errors="replace").splitlines(), start=1):
        fields = line.split()
        try:
            row = [float(field) for field in fields]
        except ValueError:
            row = []
        if fields and (len(row) != 2 or not np.isfinite(row).all() or row[1] < 0):
            raise _wrong(name, number, "two numbers, seconds and megabits per second", line)
        if fields and rows and row[0] < rows[-1][0]:
            raise _wrong(name, number, "no earlier than the line before", line)
        rows += [row] if fields else []
    if not rows or not any(speed for _, speed in rows):
        raise DataError(f"{name}: a trace must have lines with a throughput above 0. Got none.")
    times, speeds = np.array(rows).T
    lengths = np.append(np.diff(times), times[-1] - times[-2] if len(times) > 1 else 1.0)
    sent = np.concatenate([[0.0], (1e6 * speeds * lengths).cumsum()])
    return Recording(np.concatenate([[0.0], lengths.cumsum()]), sent)


def _wrong(name: str, line: int, must: str, got: str) -> DataError:
    return DataError(f"{name}: line {line} must be {must}. Got {got[:40]!r}. Correct or remove it.")
