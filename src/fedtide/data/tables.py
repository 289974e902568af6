"""Tables of examples: CSV and Parquet files, one per client or with a column that names the client."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError, needs

Column = NDArray[Any]  # of numbers, or of text
Columns = Mapping[str, Column]

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")
DELIMITERS = ",;\t"
AT_ONCE = 50_000  # rows of a CSV file that are text in memory at one time


class Table(NamedTuple):
    """The rows of one file."""

    path: Path
    columns: Columns

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values())))

    def line(self, row: int) -> int:
        """The number of a row as people count: from 1, with the row of names where there is one."""
        return row + (1 if self.path.name.endswith(".parquet") else 2)

    @property
    def client(self) -> str:
        """The client whose rows these are, if the file has one: its name without the ending."""
        return re.sub(r"\.(csv|tsv|parquet|csv\.gz)$", "", self.path.name)


def read_tables(path: Path, text: Sequence[str], drop: Sequence[str]) -> list[Table]:
    """All tables at a path, a file or a folder of files, in the order of their names.

    Columns in `text` are read as text, those in `drop` are left out, all others must be numbers.
    """
    return [_read(file, text, drop) for file in table_files(path)]


def check_same(tables: Sequence[Table]) -> None:
    """Raise a `DataError` unless all tables have the columns of the first one, in any order."""
    wanted = list(tables[0].columns)
    for table in tables:
        lacking = [name for name in wanted if name not in table.columns]
        strange = [name for name in table.columns if name not in wanted]
        if lacking or strange:
            words = [f"without {', '.join(lacking)}"] * bool(lacking)
            words += [f"with {', '.join(strange)}"] * bool(strange)
            raise DataError(
                f"{table.path}: it must have the columns of {tables[0].path.name}. Got a table "
                f"{' and '.join(words)}. Give all clients the same columns, or name those to leave out in "
                "drop."
            )


def table_files(path: Path) -> list[Path]:
    """The files with tables at a path; numbers in their names count as numbers (site2 before site10)."""
    if path.is_file():
        return [path]
    found = [
        file
        for file in (path.iterdir() if path.is_dir() else ())
        if file.name.endswith(ENDINGS) and not file.name.startswith(".")
    ]
    if not found:
        got = "a folder without one" if path.is_dir() else "no such file or folder"
        raise DataError(
            f"{path} must be a table, or a folder with one for each client: files that end in "
            f"{', '.join(ENDINGS)}. Got {got}. Check the path."
        )
    return sorted(found, key=lambda file: natural(file.name))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts texts by the numbers in them."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _read(path: Path, text: Sequence[str], drop: Sequence[str]) -> Table:
    read = _parquet if path.name.endswith(".parquet") else _csv
    columns = read(path, text, drop)
    if not columns or not Table(path, columns).rows:
        got = "Got no column" if not columns else "Got no row of values"
        raise DataError(
            f"{path}: it must have columns with names, and rows of values. {got}. Fill it."
        )
    return Table(path, columns)


def _csv(path: Path, text: Sequence[str], drop: Sequence[str]) -> Columns:
    """The columns of a CSV file, which begins with a row of names."""
    with _opened(path) as lines:
        first = lines.readline()
        delimiter = max(DELIMITERS, key=first.count)
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        _check_names(path, names)
        kept = [place for place, name in enumerate(names) if name not in drop]
        parts: list[list[Column]] = [[] for _ in kept]
        rows, done = csv.reader(lines, delimiter=delimiter), 2
        while block := list(islice(rows, AT_ONCE)):
            _check_widths(path, block, names, done)
            block = [row for row in block if row]  # without empty lines
            for part, place in zip(parts, kept, strict=True):
                cells = np.array([row[place].strip() for row in block], dtype=np.str_)
                is_text = names[place] in text
                part.append(cells if is_text else numbers(path, names[place], cells, done))
            done += AT_ONCE
    return {
        names[place]: np.concatenate(part) if part else np.empty(0)
        for part, place in zip(parts, kept, strict=True)
    }


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """A CSV file as text, plain or gzipped; what cannot be read is one sentence."""
    try:
        opened = gzip.open if path.name.endswith(".gz") else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} must be a CSV file in UTF-8. Got one that cannot be read ({error}). Save it again."
        ) from error


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if not names or "" in names or twice:
        got = f"the name {min(twice)!r} twice" if twice else f"{', '.join(names) or 'nothing'}"
        raise DataError(
            f"{path}: the first row must have a name for each column, and none twice. Got {got}. "
            "Name the columns."
        )


def _check_widths(path: Path, block: list[list[str]], names: Sequence[str], first: int) -> None:
    for line, row in enumerate(block, first):
        if row and len(row) != len(names):
            raise DataError(
                f"{path}: row {line} must have {len(names)} values, as many as the first row has names. "
                f"Got {len(row)}. Correct the row."
            )


def numbers(path: Path, name: str, cells: Column, first: int = 2) -> Column:
    """Text as numbers; `first` is the row of the first cell."""
    try:
        return cells.astype(np.float64)
    except ValueError:
        for line, cell in enumerate(cells.tolist(), first):
            if not is_number(cell):
                raise DataError(
                    f"{path}: row {line} of column {name!r} must be a number. Got {cell!r}. Correct it, or "
                    f"leave the column out with drop = [{name!r}]."
                ) from None
        raise


def is_number(cell: str) -> bool:
    """Does this text say a number? Also "nan" does."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parquet(path: Path, text: Sequence[str], drop: Sequence[str]) -> Columns:
    """The columns of a Parquet file."""
    needs(f"{path}: a Parquet file", "parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} must be a Parquet file. Got one that cannot be read ({reason}). Save it again."
        ) from error
    _check_names(path, table.column_names)
    found = {}
    for name in table.column_names:
        if name not in drop:
            column = table.column(name)
            values = np.asarray(column.to_numpy())
            if name in text:
                found[name] = values.astype(np.str_)
            elif values.dtype.kind in "iufb":
                found[name] = values.astype(np.float64)
            else:
                found[name] = numbers(path, name, values.astype(np.str_), 1)
    return found


def check_finite(table: Table, names: Sequence[str]) -> None:
    """Raise a `DataError` where one of these columns has a value that is missing or not finite."""
    for name in names:
        wrong = np.flatnonzero(~np.isfinite(table.columns[name]))
        if len(wrong):
            row, value = table.line(int(wrong[0])), table.columns[name][wrong[0]]
            raise DataError(
                f"{table.path}: row {row} of column {name!r} must be a finite number. Got {value} "
                f"({len(wrong)} such rows). Fill it in, leave the row out, or leave the column out with "
                f"drop = [{name!r}]."
            )


def check_filled(table: Table, name: str, cells: Column) -> None:
    """Raise a `DataError` if a cell of this column of text is empty."""
    empty = np.flatnonzero(cells == "")
    if len(empty):
        raise DataError(
            f"{table.path}: row {table.line(int(empty[0]))} of column {name!r} must not be empty. "
            "Got nothing. Fill it in, or leave the row out."
        )
