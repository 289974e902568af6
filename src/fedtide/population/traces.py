"""Recorded availability: traces of when clients were available, resampled to rounds.

A trace is a CSV file (plain or .gz) with one of two headers:

    client,start,end          the client was available from start to end, in seconds
    client,minute,available   it was available (1) or not (0) during this minute

Clients are numbered from 0. Overlapping stretches count once, times without a record count as unavailable,
and lines may come in any order. A stretch that ends before it starts, a client beyond the population or a
field that is not a number is an error that names the line. Round t is the t-th interval of `round_minutes`
since the earliest time in the file; a client is available in it if it was for at least half of that time.
After its end a trace begins again.
"""

import csv
import gzip
import io
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, DataError, require
from fedtide.core.rng import uniforms
from fedtide.core.types import Crowd, Nothing, Session
from fedtide.population.process import Available, Mask

PHONES = "device_traces/extrasensory_30users_device_state.csv.gz"
HOLD = 300.0  # seconds after which a phone's state is unknown; most record one each minute, some each five
DAY = 86400.0
GAPS = 10  # at least one in this many client numbers must have a line
MOST_BYTES = 2**30  # the largest size of an unpacked trace
MOST_CELLS = 10**8  # the largest number of clients x rounds in memory

Stretch = tuple[float, float]  # from, to, in seconds
Row = Mapping[str, str]


class Timeline(NamedTuple):
    """The availability of each recorded client in each round; recordings have different lengths."""

    there: Mask  # the recordings of all clients, one after the other
    first: NDArray[np.int64]  # [recordings]: where each begins
    length: NDArray[np.int64]  # [recordings]: rounds of each

    def at(self, trace: NDArray[np.int64], round_: NDArray[np.int64]) -> Mask:
        """Was the client of each recording available in that round? Recordings repeat."""
        mask: Mask = self.there[self.first[trace] + round_ % self.length[trace]]
        return mask


@dataclass(frozen=True, kw_only=True)
class Recorded(Available):
    """Clients are available as in a recording."""

    round_minutes: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        minutes = self.round_minutes
        require(0 < minutes < np.inf, "participation.round_minutes", "a positive number", minutes)

    @abstractmethod
    def timeline(self) -> Timeline:
        """The recording; read once, and again if its file has changed."""

    def start(self, crowd: Crowd, seed: int) -> Nothing:
        self.timeline()
        return Nothing()


@dataclass(frozen=True, kw_only=True)
class AvailabilityTrace(Recorded):
    """Your own recording: a CSV `file` with the columns client,start,end or client,minute,available.

    A client without a line is never available. With `replicate` the population may be larger than the trace:
    client u repeats the recording of client u modulo their number, and copies are shifted in time, each by a
    random part of the recording's length.
    """

    file: str = ""
    replicate: bool = False

    def timeline(self) -> Timeline:
        if not self.file:
            raise ConfigError(
                "participation.file must be a CSV file of a trace. Got nothing. "
                "Write participation = { kind = 'trace', file = 'my-trace.csv' }."
            )
        return _read(Path(self.file), _stamp(Path(self.file)), self.round_minutes, "trace")

    def check(self, session: Session) -> None:
        self.timeline()

    def start(self, crowd: Crowd, seed: int) -> Nothing:
        known = len(self.timeline().length)
        if known > crowd.clients:
            raise DataError(
                f"{self.file}: its clients must be among the {crowd.clients} of the population, "
                f"0 to {crowd.clients - 1}. Got client {known - 1}. "
                "Raise population.clients or remove its lines."
            )
        return Nothing()

    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        line, ids = self.timeline(), session.clients
        known = len(line.length)
        if self.replicate:
            return _copies(line, t, session, seed)
        there = np.zeros(len(ids), dtype=bool)
        mine = ids < known
        there[mine] = line.at(ids[mine], np.full(int(mine.sum()), t))
        return there


@dataclass(frozen=True, kw_only=True)
class Phones(Recorded):
    """The phones of ExtraSensory (Vaizman, Ellis and Lanckriet, 2017), available while charging and on Wi-Fi.

    30 phones over 3 to 28 days each; `file` is by default the one in FEDTIDE_DATA. Charging means plugged
    in, or with a battery that is charging or full. A recorded state holds until the next one, for at most
    five minutes; otherwise the phone is unavailable. Each phone's recording is cut into whole days (UTC)
    and repeats after the last; a run begins it with a random day, because on the first day, before they
    were enrolled, all phones are unavailable. Client u is phone u modulo 30; copies are shifted by a random
    part of the phone's recording instead, to any time of the day.
    """

    file: str = ""

    def timeline(self) -> Timeline:
        path = Path(self.file)
        if not self.file:
            place = os.environ.get("FEDTIDE_DATA", "")
            if not place:
                raise DataError(
                    "participation 'phones' must find its file. Got neither participation.file nor "
                    f"FEDTIDE_DATA. Set FEDTIDE_DATA to a folder that holds {PHONES}."
                )
            path = Path(place) / PHONES
        return _read(path, _stamp(path), self.round_minutes, "phones")

    def present(self, who: Any, t: int, session: Session, seed: int) -> Mask:
        return _copies(self.timeline(), t, session, seed, day=DAY / 60 / self.round_minutes)


def _copies(line: Timeline, t: int, session: Session, seed: int, day: float = np.inf) -> Mask:
    """Availability when client u repeats recording u modulo their number, shifted in time.

    The first client of each recording is shifted by whole days of `day` rounds (not at all if `day` is
    infinite), further ones by any part of the recording.
    """
    known = len(line.length)
    trace = session.clients % known
    part = uniforms(seed, "shift", ids=session.clients, count=1)[:, 0] * line.length[trace]
    days = part // day * day if np.isfinite(day) else np.zeros(len(part))
    shift = np.where(session.clients < known, days, part).astype(np.int64)
    return line.at(trace, t + shift)


def _stamp(path: Path) -> int:
    """The time of the file's last change."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(
            f"participation.file must be a trace that can be read. Got {path} ({error.strerror}). "
            "Check the path."
        ) from error


@lru_cache(maxsize=4)
def _read(path: Path, stamp: int, round_minutes: float, form: str) -> Timeline:
    stretches = _phones(path) if form == "phones" else _trace(path)
    seconds = 60 * round_minutes
    cells = sum(end / seconds for _, end in stretches)
    must = f"long enough to cut {path.name} into fewer than {MOST_CELLS:,} cells"
    require(cells < MOST_CELLS, "participation.round_minutes", must, round_minutes)
    parts = [_rounds(members, end, seconds) for members, end in stretches]
    length = np.array([len(part) for part in parts])
    return Timeline(np.concatenate(parts), length.cumsum() - length, length)


def _rounds(stretches: list[Stretch], end: float, seconds: float) -> Mask:
    """For each round up to `end`: was the client available for at least half of it?"""
    edges = np.arange(max(1, int(np.ceil(end / seconds))) + 1) * seconds
    corners, covered, total = [0.0], [0.0], 0.0  # seconds of availability before each corner
    for begin, stop in _merged(stretches):
        corners += [begin, stop]
        covered += [total, total + stop - begin]
        total = covered[-1]
    mask: Mask = np.diff(np.interp(edges, corners, covered)) >= seconds / 2
    return mask


def _merged(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """The stretches in order of time, with overlapping ones joined."""
    begin = stop = 0.0
    for left, right in sorted(stretches):
        if left > stop:
            yield begin, stop
            begin, stop = left, right
        stop = max(stop, right)
    yield begin, stop


def _trace(path: Path) -> list[tuple[list[Stretch], float]]:
    """The stretches of each client, in seconds since the earliest time, and the length of the trace."""
    found: dict[int, list[Stretch]] = {}
    lines: dict[int, int] = {}  # the line that names each client first
    last = 0.0
    for number, row in _rows(path, {"client", "start", "end"}, {"client", "minute", "available"}):
        client = int(_number(path, number, row, "client", whole=True))
        found.setdefault(client, [])
        lines.setdefault(client, number)
        if "minute" in row:
            minute = _number(path, number, row, "minute")
            there = _number(path, number, row, "available")
            if there not in (0, 1):
                raise _wrong(path, number, "available must be 0 or 1", row["available"])
            stretch = (60 * minute, 60 * (minute + there))
            last = max(last, 60 * (minute + 1))  # also if the client was not available
        else:
            stretch = (_number(path, number, row, "start"), _number(path, number, row, "end"))
            if stretch[1] <= stretch[0]:
                raise _wrong(
                    path, number, "end must lie after start", f"{row['start']}, {row['end']}"
                )
        found[client].append(stretch)
    highest = max(found)
    if highest >= GAPS * (len(found) + 100):
        must = "clients must be numbered from 0 without large gaps"
        raise _wrong(path, lines[highest], must, str(highest))
    zero = min(begin for members in found.values() for begin, _ in members)
    end = max(last, *(stop for members in found.values() for _, stop in members)) - zero
    return [
        ([(b - zero, e - zero) for b, e in found.get(client, [])], end)
        for client in range(highest + 1)
    ]


def _phones(path: Path) -> list[tuple[list[Stretch], float]]:
    """The stretches in which each phone was charging and on Wi-Fi, and the length of its whole days."""
    noted: dict[int, list[tuple[float, bool]]] = {}
    for number, row in _rows(path, {"user", "timestamp", "plugged", "battery", "wifi"}):
        phone = int(_number(path, number, row, "user", whole=True))
        charging = row["battery"] in ("charging", "full") or row["plugged"] in ("ac", "usb")
        there = charging and row["wifi"] == "reachable_via_wifi"
        noted.setdefault(phone, []).append((_number(path, number, row, "timestamp"), there))
    return [_days(sorted(states)) for _, states in sorted(noted.items())]


def _days(states: list[tuple[float, bool]]) -> tuple[list[Stretch], float]:
    times = np.array([time for time, _ in states])
    times -= times[0] // DAY * DAY
    until = np.minimum(np.append(times[1:], np.inf), times + HOLD)
    ends = zip(times.tolist(), until.tolist(), (there for _, there in states), strict=True)
    stretches = [(begin, end) for begin, end, there in ends if there]
    return stretches, float(np.ceil(until[-1] / DAY) * DAY)


def _rows(path: Path, *forms: set[str]) -> Iterator[tuple[int, Row]]:
    """The lines of a CSV file with their numbers; its header must have the columns of one form."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DataError(f"{path}: a trace must hold at most {MOST_BYTES:,} bytes. Got more.")
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: it must be a CSV file in UTF-8. Got: {error}.") from error
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    header = set(table.fieldnames or ())
    if not any(form <= header for form in forms):
        wanted = " or ".join(",".join(sorted(form)) for form in forms)
        got = ",".join(table.fieldnames or ()) or "an empty file"
        raise DataError(f"{path}: its header must have the columns {wanted}. Got {got[:80]}.")
    empty = True
    try:
        for row in table:
            if None in row or None in row.values():
                raise _wrong(
                    path, table.line_num, f"it must have {len(header)} fields", "another number"
                )
            empty = False
            yield table.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}: line {table.line_num} must be CSV. Got: {error}.") from error
    if empty:
        raise DataError(f"{path}: it must have lines after its header. Got none. Add some.")


def _number(path: Path, line: int, row: Row, column: str, whole: bool = False) -> float:
    """A field as a number; with `whole` a client's number."""
    try:
        value = float(row[column])
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or (whole and not (value.is_integer() and 0 <= value < 2**31)):
        must = "the number of a client, 0 or more" if whole else "a finite number"
        raise _wrong(path, line, f"{column} must be {must}", row[column])
    return value


def _wrong(path: Path, line: int, must: str, got: object) -> DataError:
    return DataError(f"{path}: line {line}: {must}. Got {got!r}. Correct or remove the line.")
