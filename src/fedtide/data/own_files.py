"""A user's own tables as a `Dataset`, and as [data] kind = "files" in a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import DataError, require
from fedtide.core.types import Dataset, Examples
from fedtide.data.partition import Natural, Partition
from fedtide.data.source import Split
from fedtide.data.tables import (
    FileTable,
    check_filled,
    check_finite,
    check_same,
    is_number,
    natural,
    numbers,
    read_tables,
    table_files,
)

Ints = NDArray[np.int64]
Stamp = tuple[tuple[str, int, int], ...]


class Roles(NamedTuple):
    """What the columns of a table are for; all others are inputs."""

    targets: tuple[str, ...]
    client: str = ""  # names the client; empty: each file is one client's
    time: str = ""  # of recording
    drop: tuple[str, ...] = ()

    @property
    def others(self) -> set[str]:
        """All columns that are not inputs."""
        return {*self.targets, self.client, self.time, *self.drop}


@dataclass(frozen=True, kw_only=True)
class Files(Split):
    """CSV or Parquet files: one per client, or one whose column `client` names the client.

    All columns are inputs but `target` (one or several), `client`, `time` and those in `drop`. Targets are
    numbers, unless `classes` says how many labels there are or the column is text, whose words are labels.
    """

    folder: str = ""  # of the files, or one file
    target: str | tuple[str, ...] = "y"
    client: str = ""
    time: str = ""
    test: str = ""  # folder or file with test examples of the same form
    drop: tuple[str, ...] = ()
    classes: int = 0
    scale: bool = False  # inputs less their mean and divided by their deviation, over all clients
    partition: Partition = field(default_factory=Natural)

    def __post_init__(self) -> None:
        super().__post_init__()
        do = "Write data = { kind = 'files', folder = 'hospitals', target = 'days' }."
        require(self.folder != "", "data.folder", "a folder of tables, or one table", "", do)
        require(self.target not in ("", ()), "data.target", "a column, or several", self.target)
        require(self.classes >= 0, "data.classes", "zero or more", self.classes)

    @property
    def title(self) -> str:
        return Path(self.folder).name

    @property
    def is_here(self) -> bool:
        return Path(self.folder).exists()

    @property
    def advice(self) -> str:
        return f"Write data.folder as seen from the folder in which you type fedtide. Got {self.folder!r}."

    def load(self) -> Dataset:
        return _loaded(self._arguments, _stamp(self.folder) + _stamp(self.test))

    def checksum(self) -> str:
        return _checksum(self._arguments, _stamp(self.folder) + _stamp(self.test))

    @property
    def _arguments(self) -> tuple[object, ...]:
        places = (self.folder, self.target, self.test, self.client, self.time)
        return (*places, self.drop, self.classes, self.scale)


def from_files(
    folder: str | Path,
    target: str | Sequence[str] = "y",
    test: str | Path = "",
    client: str = "",
    time: str = "",
    drop: Sequence[str] = (),
    classes: int = 0,
    scale: bool = False,
    name: str = "",
) -> Dataset:
    """CSV or Parquet files as a dataset: one per client, or one whose column `client` names the client.

    All columns are inputs but `target` (one or several), `client`, `time` and those in `drop`. Targets are
    numbers, unless `classes` says how many labels there are or the column is text, whose words are labels.
    Without `test`, a folder or file with test examples, set `Data(test_share=...)`.
    """
    require(classes >= 0, "from_files: classes", "zero or more", classes)
    targets = (target,) if isinstance(target, str) else tuple(target)
    roles = Roles(targets, client, time, tuple(drop))
    tables = _tables(Path(folder), roles)
    tests = _tables(Path(test), roles) if str(test) else []
    check_same([*tables[:1], *tests])
    inputs = _inputs(tables[0], roles)
    words = _words([*tables, *tests], roles)
    labels = classes or len(words)
    parts = [_examples(part, inputs, roles, words, labels) for part in (tables, tests)]
    parts = _scaled(parts) if scale else parts
    keys = _keys(tables, tests, roles)
    return Dataset(
        name or Path(folder).name,
        train=parts[0],
        test=parts[1],
        classes=labels,
        keys=keys[0],
        test_keys=keys[1] if tests else None,
        times=_times(tables, roles),
    )


def _inputs(table: FileTable, roles: Roles) -> list[str]:
    """The columns that are inputs."""
    inputs = [column for column in table.columns if column not in roles.others]
    if not inputs:
        others = ", ".join(sorted(roles.others - {""}))
        raise DataError(
            f"{table.path}: there must be a column of inputs beside {others}. Got none. Name fewer columns."
        )
    return inputs


def _tables(path: Path, roles: Roles) -> list[FileTable]:
    """All tables at a path, once they have the columns that are named."""
    text = (*roles.targets, roles.client, roles.time)
    tables = read_tables(path, text, roles.drop)
    for column in text:
        if column and column not in tables[0].columns:
            raise DataError(
                f"{tables[0].path}: there must be a column {column!r}. Got the columns "
                f"{', '.join(tables[0].columns)}. Name one of them."
            )
    check_same(tables)
    return tables


def _words(tables: Sequence[FileTable], roles: Roles) -> list[str]:
    """The labels of a target that is text: a column without any number; else none."""
    cells = [table.columns[roles.targets[0]] for table in tables]
    if len(roles.targets) > 1 or any(map(is_number, np.concatenate(cells).tolist())):
        return []
    words = sorted({*np.concatenate(cells).tolist()}, key=natural)
    for table, column in zip(tables, cells, strict=True):
        check_filled(table, roles.targets[0], column)
    return words


def _examples(
    tables: Sequence[FileTable], inputs: Sequence[str], roles: Roles, words: list[str], labels: int
) -> Examples:
    """Inputs and targets of these tables, one after the other."""
    kind = torch.get_default_dtype()
    rows, targets = [np.empty((0, len(inputs)))], [np.empty((0, len(roles.targets)))]
    for table in tables:
        check_finite(table, inputs)
        rows.append(np.stack([table.columns[name] for name in inputs], axis=1))
        targets.append(_targets(table, roles, words, labels))
    found = np.concatenate(targets)
    found = found[:, 0] if len(roles.targets) == 1 else found
    numbers = torch.from_numpy(found)
    return Examples(
        torch.from_numpy(np.concatenate(rows)).to(kind),
        numbers.long() if labels else numbers.to(kind),
    )


def _targets(table: FileTable, roles: Roles, words: list[str], labels: int) -> NDArray[np.float64]:
    """The targets of one table: [N, targets]."""
    if words:
        return np.searchsorted(words, table.columns[roles.targets[0]])[:, None].astype(np.float64)
    columns = {name: numbers(table.path, name, table.columns[name]) for name in roles.targets}
    check_finite(FileTable(table.path, columns), roles.targets)
    for name, values in columns.items():
        wrong = values[(values % 1 != 0) | (values < 0) | (values >= labels)]
        if labels and len(wrong):
            raise DataError(
                f"{table.path}: column {name!r} must have labels, whole numbers from 0 to {labels - 1}, as "
                f"classes = {labels}. Got {wrong[0]:g}. Correct it, or leave classes out for numbers."
            )
    return np.stack(list(columns.values()), axis=1)


def _scaled(parts: Sequence[Examples]) -> list[Examples]:
    """Inputs less the mean of the training examples, divided by their deviation."""
    train = parts[0].inputs
    assert isinstance(train, torch.Tensor)
    mean, std = train.mean(0), train.std(0, correction=0)
    std[std == 0] = 1
    return [replace(part, inputs=(part.inputs - mean) / std) for part in parts]  # type: ignore[operator]


def _owners(tables: Sequence[FileTable], roles: Roles) -> list[str]:
    """The name of the client of each example."""
    found: list[str] = []
    for table in tables:
        if roles.client:
            check_filled(table, roles.client, table.columns[roles.client])
            found += table.columns[roles.client].tolist()
        else:
            found += [table.client] * table.rows
    return found


def _keys(tables: Sequence[FileTable], tests: Sequence[FileTable], roles: Roles) -> list[Ints]:
    """The number of the client of each example, by the order of their names; those of tests come last."""
    owners = [_owners(part, roles) for part in (tables, tests)]
    names = {each: place for place, each in enumerate(sorted({*owners[0]}, key=natural))}
    for each in owners[1]:
        names.setdefault(each, len(names))
    return [np.array([names[each] for each in part], dtype=np.int64) for part in owners]


def _times(tables: Sequence[FileTable], roles: Roles) -> Ints | None:
    """The rank in time of each training example; dates must be written so that their text sorts."""
    if not roles.time:
        return None
    cells = np.concatenate([table.columns[roles.time] for table in tables])
    if all(map(is_number, cells.tolist())):
        cells = cells.astype(np.float64)
    for table in tables:
        check_filled(table, roles.time, table.columns[roles.time])
    return np.unique(cells, return_inverse=True)[1].astype(np.int64)


def _stamp(place: str) -> Stamp:
    """Names, times of last change and sizes of the files at a place."""
    if not place:
        return ()
    files = ((file, file.stat()) for file in table_files(Path(place)))
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in files)


@lru_cache(maxsize=2)
def _loaded(arguments: tuple[Any, ...], stamp: Stamp) -> Dataset:
    """Read files once for all runs of a study, unless they change."""
    return from_files(*arguments)


@lru_cache(maxsize=16)
def _checksum(arguments: tuple[Any, ...], stamp: Stamp) -> str:
    return _loaded(arguments, stamp).checksum()
