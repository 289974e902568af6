"""Recorded visits: which clients came and left when, from CSV and Parquet files.

A file has one line per visit (client, arrive, leave) or one per client and snapshot (client, seen). Times are
rounds, or, if a round has a length, seconds or dates (ISO 8601; UTC if they name no zone). Clients have
numbers or names.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError, needs
from fedtide.population.visits import Visits

MOST = 10**8  # the largest number of a client or a round
LONGEST = 10**7  # rounds of a trace whose rounds have a length: 19 years of minutes
ROUNDING = 1e-6  # of a round: times this shortly after its beginning are at its beginning
GAPS = 10  # clients have numbers if at least one in this many is in the file, otherwise names
Numbers = NDArray[np.float64]
Names = NDArray[np.str_]


@dataclass(frozen=True)
class Form:
    """How a file of visits is to be read."""

    columns: tuple[str, ...] = (
        "client",
        "arrive",
        "leave",
    )  # or two: client and the time of a snapshot
    round_minutes: float = 0.0  # 0: times are rounds
    group: str = ""  # the column with the number of a client's label set; "": there is none


class RecordedVisits(NamedTuple):
    """What a file says about visits."""

    visits: Visits
    names: Names  # [clients]
    sizes: tuple[int, ...]  # the number of clients with each label set; without label sets: of all
    begin: float  # the time of round 0, in seconds since 1970 if times are dates
    is_dated: bool
    dropped: Mapping[str, int]  # how many visits were dropped, by reason


class RawColumn(NamedTuple):
    """The values of a column as a file has them, and as numbers where all of them are numbers or dates."""

    raw: Sequence[Any]
    numbers: Numbers | None
    is_dated: bool = False


@dataclass
class VisitFile:
    """A file and the lines that its values come from, for errors."""

    path: Path
    columns: dict[str, RawColumn] = field(default_factory=dict)

    def wrong(self, row: int, column: str, must: str) -> NoReturn:
        """Raise an error about the value of a row."""
        got = self.columns[column].raw[row]
        got = got.as_py() if hasattr(got, "as_py") else got
        text = (
            str(got) if isinstance(got, datetime) else "nothing" if got in (None, "") else repr(got)
        )
        is_parquet = self.path.suffix == ".parquet"
        where = f"row {row + 1}" if is_parquet else f"line {_line(self.path, row)}"
        raise DataError(
            f"{self.path}: {where}: {column} must be {must}. Got {text}. Correct or remove it."
        )

    def names(self, column: str) -> tuple[NDArray[np.int64], Names]:
        """The number of each row's name among all names, and these names."""
        raw = self.columns[column].raw
        if hasattr(raw, "dictionary_encode"):
            coded = raw.dictionary_encode().combine_chunks()
            codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            names = np.array(coded.dictionary.to_pylist(), dtype=np.str_)
        else:
            names, codes = np.unique(np.array(raw, dtype=np.str_), return_inverse=True)
        names, places = np.unique(np.char.strip(names), return_inverse=True)
        codes = np.where(codes < 0, -1, places[codes])
        if (codes < 0).any() or "" in names:
            empty = (codes < 0) | (names[codes] == "")
            self.wrong(int(empty.argmax()), column, "a name or a number")
        return codes, names

    def times(self, column: str, empty: float | None = None) -> tuple[Numbers, bool]:
        """Rounds, seconds or dates as numbers, and whether they are dates; `empty` replaces missing ones."""
        held = self.columns[column]
        numbers, is_dated = held.numbers, held.is_dated
        if numbers is None:
            numbers, is_dated = self._read(column)
        gone = np.isnan(numbers) if empty is not None else ~np.isfinite(numbers)
        if gone.any():
            if empty is None:
                self.wrong(int(gone.argmax()), column, "a number or a date")
            numbers = np.where(gone, empty, numbers)
        return numbers, is_dated

    def _read(self, column: str) -> tuple[Numbers, bool]:
        """The values of a column one by one: all numbers, or all dates; missing ones are NaN."""
        raw = self.columns[column].raw
        texts = [str(value).strip() for value in _values(raw)]
        first = next((text for text in texts if text), "")
        read: Callable[[str], float] = float if _is(float, first) else _seconds
        found = np.full(len(texts), np.nan)
        for row, text in enumerate(texts):
            if text:
                try:
                    found[row] = read(text)
                except ValueError:
                    kind = "a number" if read is float else "a date such as 2026-11-18 09:30"
                    is_first = text == first
                    self.wrong(row, column, kind if is_first else f"{kind}, as on the first line")
        return found, read is _seconds


def read(path: Path, form: Form) -> RecordedVisits:
    """The visits in a file; read once, and again when the file has changed."""
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(
            f"population.file must be a CSV or Parquet file with the columns {', '.join(form.columns)}. "
            f"Got {str(path)!r} ({error.strerror}). Check the path, as seen from where fedtide runs."
        ) from error
    return _recording(path, stamp, form)


@lru_cache(maxsize=4)
def _recording(path: Path, stamp: int, form: Form) -> RecordedVisits:
    source = _source(path, [*form.columns, *([form.group] if form.group else [])])
    client, *times = form.columns
    codes, names = source.names(client)
    if len(times) == 1:
        begin, end, is_dated = _snapshots(source, times[0])
    else:
        begin, is_dated = source.times(times[0])
        end, also_dated = source.times(times[1], empty=np.inf)
        if is_dated != also_dated and np.isfinite(end).any():
            row = int(np.isfinite(end).argmax())
            source.wrong(row, times[1], f"{'a date' if is_dated else 'a number'}, as {times[0]} is")
    late = np.flatnonzero(~(end > begin))
    if len(late):
        source.wrong(int(late[0]), times[-1], f"after {times[0]}")
    if form.round_minutes:
        zero = float(begin.min())
        seconds = 60 * form.round_minutes
        begin, end = (np.ceil((times - zero) / seconds - ROUNDING) for times in (begin, end))
        far = np.flatnonzero((begin >= LONGEST) | (np.isfinite(end) & (end >= LONGEST)))
        if len(far):
            must = f"within {LONGEST:,} rounds of the first time, or rounds must be longer"
            source.wrong(int(far[0]), times[0], must)
    else:
        zero = 0.0
        _check_rounds(source, times, begin, end, is_dated)
    groups = _groups(source, form.group, codes, len(names))
    kept = end > begin
    if not kept.any():
        source.wrong(0, times[0], "before the beginning of a round that the visit lasts into")
    dropped = {"shorter than a round, between the beginnings of two": int((~kept).sum())}
    arrive, leave = begin[kept].astype(np.int64), np.minimum(end[kept], MOST).astype(np.int64)
    used, codes = np.unique(codes[kept], return_inverse=True)
    names = names[used]
    numbers, sizes = _numbered(names, codes, arrive, groups[used])
    visits = Visits(numbers[codes], arrive, leave)
    ordered = np.arange(numbers.max() + 1).astype(np.str_)  # a number in a gap is its own name
    ordered = ordered.astype(np.result_type(ordered, names))
    ordered[numbers] = names
    return RecordedVisits(visits, ordered, sizes, zero, is_dated, dropped)


def _check_rounds(
    source: VisitFile, columns: Sequence[str], begin: Numbers, end: Numbers, is_dated: bool
) -> None:
    """Refuse times that are no rounds."""
    if is_dated:
        raise DataError(
            f"population.round_minutes must be the length of a round where {source.path.name} has dates. "
            "Got 0. Write for example round_minutes = 10."
        )
    for column, times in zip(columns, (begin, end), strict=False):
        finite = np.where(np.isfinite(times), times, 0)
        bad = np.flatnonzero((finite != np.floor(finite)) | (finite < 0) | (finite >= MOST))
        if len(bad):
            must = f"a whole round, 0 or more and below {MOST:,} (or set population.round_minutes)"
            source.wrong(int(bad[0]), column, must)


def _snapshots(source: VisitFile, column: str) -> tuple[Numbers, Numbers, bool]:
    """The visits between snapshots: a client that was seen in one exists until the next is taken.

    What the last snapshot shows lasts as long as what the one before it showed.
    """
    seen, is_dated = source.times(column)
    times = np.unique(seen)
    step = times[-1] - times[-2] if len(times) > 1 else 1.0
    following = np.append(times[1:], times[-1] + step)
    return seen, following[np.searchsorted(times, seen)], is_dated


def _groups(
    source: VisitFile, column: str, codes: NDArray[np.int64], names: int
) -> NDArray[np.int64]:
    """The number of each client's label set."""
    found = np.zeros(names, dtype=np.int64)
    if column:
        numbers, _ = source.times(column)
        bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers > 1000))
        if len(bad):
            source.wrong(int(bad[0]), column, "the number of a label set, from 0")
        found[codes] = numbers
        moved = np.flatnonzero(found[codes] != numbers)
        if len(moved):
            source.wrong(int(moved[0]), column, "the same on all lines of a client")
    return found


def _numbered(
    names: Names, codes: NDArray[np.int64], arrive: NDArray[np.int64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The number of each client, and how many clients have each label set.

    Clients whose names are whole numbers from 0, without large gaps, keep them. Others are numbered by their
    first arrival, those that arrive together by their names, one label set after the other.
    """
    digits = np.char.isdecimal(names) & (np.char.str_len(names) <= len(str(MOST)))
    if digits.all() and not groups.any():
        numbers = names.astype(np.int64)
        if numbers.max() < GAPS * (len(names) + 100) and len(np.unique(numbers)) == len(names):
            return numbers, (int(numbers.max()) + 1,)
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, codes, arrive)
    numbers = np.empty(len(names), dtype=np.int64)
    numbers[np.lexsort((names, first, groups))] = np.arange(len(names))
    return numbers, tuple(np.bincount(groups).tolist())


def _source(path: Path, columns: Sequence[str]) -> VisitFile:
    """The columns of a file: by pyarrow where it is installed, otherwise CSV files by Python."""
    if find_spec("pyarrow"):
        source = _by_pyarrow(path, columns)
    else:
        if path.suffix == ".parquet":
            needs(f"{path}: a Parquet file", "parquet", "pyarrow")
        source = _by_csv(path, columns)
    if not len(source.columns[columns[0]].raw):
        raise DataError(f"{path}: it must have at least one visit. Got none. Add some.")
    return source


def _by_pyarrow(path: Path, columns: Sequence[str]) -> VisitFile:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            kinds = {columns[0]: pa.string()}
            how = arrow_csv.ConvertOptions(
                column_types=kinds, strings_can_be_null=True, null_values=[""]
            )
            with pa.input_stream(str(path)) as stream:  # unzips by the name's ending
                table = arrow_csv.read_csv(stream, convert_options=how)
        table = table.rename_columns([name.strip() for name in table.column_names])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if path.suffix != ".parquet":
            _by_csv(path, columns)  # raises an error that names the line, where a line is wrong
        raise _unreadable(path, columns, error) from error
    _check_header(path, columns, table.column_names)
    source = VisitFile(path)
    for name in columns:
        column = table.column(name)
        if pa.types.is_binary(column.type):
            raise _unreadable(path, columns, ValueError(f"{name} is not UTF-8"))
        if name == columns[0]:
            source.columns[name] = RawColumn(column.cast(pa.string()), None)
        elif pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
            dates = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            source.columns[name] = RawColumn(column, _numbers(dates) / 1e6, True)
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            source.columns[name] = RawColumn(column, _numbers(column))
        else:
            source.columns[name] = RawColumn(column, None)
    return source


def _numbers(column: Any) -> Numbers:
    """A column of numbers; missing ones are NaN."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _by_csv(path: Path, columns: Sequence[str]) -> VisitFile:
    try:
        with _text(path) as lines:
            header, *rows = [*csv.reader(lines, strict=True)] or [[]]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise _unreadable(path, columns, error) from error
    header = [name.strip() for name in header]
    _check_header(path, columns, header)
    rows = [row for row in rows if row]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise DataError(
                f"{path}: line {_line(path, number)}: it must have {len(header)} fields. Got {len(row)}."
            )
    places = {name: header.index(name) for name in columns}
    return VisitFile(
        path, {n: RawColumn([row[at] for row in rows], None) for n, at in places.items()}
    )


def _text(path: Path, errors: str = "strict") -> TextIO:
    """A CSV file, unzipped if its name ends in .gz."""
    how = gzip.open if path.suffix == ".gz" else open
    return cast(TextIO, how(path, "rt", encoding="utf-8-sig", newline="", errors=errors))


def _line(path: Path, row: int) -> int:
    """The number of the line on which a row of a CSV file ends; empty lines are no rows."""
    with _text(path, errors="replace") as lines:
        reader = csv.reader(lines)
        filled = (reader.line_num for fields in reader if fields)
        return next(islice(filled, row + 1, None))


def _check_header(path: Path, columns: Sequence[str], header: Sequence[str]) -> None:
    twice = [name for name in columns if header.count(name) > 1]
    if twice:
        raise DataError(
            f"{path}: it must have one column {twice[0]!r}. Got {header.count(twice[0])}."
        )
    missing = [name for name in columns if name not in header]
    if missing:
        got = ", ".join(header)[:80] or "an empty file"
        raise DataError(
            f"{path}: its columns must include {', '.join(columns)}. Got {got}. "
            "Name yours in population.columns, and that of label sets in population.group."
        )


def _unreadable(path: Path, columns: Sequence[str], error: Exception) -> DataError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(
        f"{path}: it must be a CSV or Parquet file with the columns {', '.join(columns)}. Got: {first}"
    )


def _values(raw: Any) -> Sequence[Any]:
    """The values of a column as Python objects; missing ones are empty texts."""
    values = raw.to_pylist() if hasattr(raw, "to_pylist") else raw
    return ["" if value is None else value for value in values]


def _is(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _seconds(text: str) -> float:
    """Seconds since 1970 of a date in ISO 8601."""
    date = datetime.fromisoformat(text)
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
