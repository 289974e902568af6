"""The ledger of a paper: every number that it prints, ours beside it, and what that says.

`published.toml` in the folder of the paper's studies has the tables as printed and says which study gives
which of their numbers; `ours.json` beside it has what these studies gave, taken from folders of results.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.core.errors import ConfigError, require
from fedtide.measure.printed import printed
from fedtide.measure.results import ResultRow, Results
from fedtide.record.folder import StudyFolder

PUBLISHED, OURS = "published.toml", "ours.json"
SEEDS = 3  # from which a comparison counts as repeated
VERDICTS = ("agrees", "close", "differs", "not run")
CLOSE = {"%": 2.0, "fraction": 0.02}  # two points
RELATIVE = 0.02  # of numbers with another unit

Place = Mapping[str, Any]  # where a number stands: {"dataset": "MNIST", "alpha": 0.3, ...}


class PublishedNumber(NamedTuple):
    """A number that a paper prints, in the paper's unit."""

    table: str
    place: Place
    value: float
    spread: float | None
    unit: str


class OurNumber(NamedTuple):
    """Our number for the same place."""

    study: str
    value: float
    spread: float
    seeds: int
    size: str  # how our study is smaller than the paper's; empty: as large


class LedgerEntry(NamedTuple):
    """A printed number, ours if there is one, and the verdict."""

    printed: PublishedNumber
    ours: OurNumber | None
    verdict: str
    because: str  # why ours differs, or was not run

    @property
    def gap(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None else self.ours.value - self.printed.value


class Ledger(NamedTuple):
    """All numbers of a paper."""

    paper: str
    entries: Sequence[LedgerEntry]

    @property
    def tables(self) -> Mapping[str, list[LedgerEntry]]:
        """The entries of each table."""
        found: dict[str, list[LedgerEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.printed.table, []).append(entry)
        return found


def read(folder: Path) -> Ledger:
    """The ledger in a paper's folder."""
    told = _toml(folder / PUBLISHED)
    ours = _ours(folder)
    entries = [
        _entry(one, table, ours) for table in told["table"] for one in printed_numbers(table)
    ]
    return Ledger(told["paper"], entries)


def printed_numbers(table: Mapping[str, Any]) -> Iterator[PublishedNumber]:
    """Every number of a table, with its place."""
    keys, columns = table["rows"], table["columns"]
    places = [dict(zip(columns, at, strict=True)) for at in product(*columns.values())]
    for row in table["values"]:
        at, cells = row[: len(keys)], row[len(keys) :]
        where = f"{table['name']}, {', '.join(map(str, at))}"
        require(len(cells) == len(places), where, f"{len(places)} numbers", len(cells))
        for place, cell in zip(places, cells, strict=True):
            if cell:
                value, _, spread = cell.partition("±")
                here = dict(zip(keys, at, strict=True)) | place
                width = float(spread) if spread else None
                yield PublishedNumber(table["name"], here, float(value), width, table["unit"])


def _entry(one: PublishedNumber, table: Mapping[str, Any], ours: Mapping[str, Any]) -> LedgerEntry:
    found = next(
        (
            measured
            for rule in table.get("ours", [])
            if _fits(rule.get("where", {}), one.place)
            if (measured := _measured(one, rule, ours.get(rule["study"], {})))
        ),
        None,
    )
    if found is None:
        return LedgerEntry(one, None, "not run", _reason(table.get("not_run", []), one.place))
    said = verdict(one, found)
    because = _reason(table.get("differs", []), one.place) if said == "differs" else ""
    return LedgerEntry(one, found, said, because or (found.size if said == "differs" else ""))


def verdict(published: PublishedNumber, ours: OurNumber) -> str:
    """Is each number inside the other's spread, are they close, or do they differ?"""
    gap = abs(ours.value - published.value)
    if published.spread is not None and gap <= min(published.spread, ours.spread):
        return "agrees"
    return (
        "close" if gap < CLOSE.get(published.unit, RELATIVE * abs(published.value)) else "differs"
    )


def _reason(rules: Sequence[Mapping[str, Any]], place: Place) -> str:
    return next((str(r["because"]) for r in rules if _fits(r.get("where", {}), place)), "")


def _fits(where: Mapping[str, Any], place: Place) -> bool:
    """Is a place one of those that a rule names?"""
    return all(
        place.get(key) in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in where.items()
    )


def _measured(
    one: PublishedNumber, rule: Mapping[str, Any], study: Mapping[str, Any]
) -> OurNumber | None:
    """Our number, from the row of the study whose settings are those of the place."""
    words = rule.get("words", {})
    said = {key: words.get(str(value), value) for key, value in one.place.items()}
    wanted = {key: _filled(text, said) for key, text in rule.get("settings", {}).items()}
    for row in study.get("rows", []):
        if all(_same(row["settings"].get(key), value) for key, value in wanted.items()):
            numbers = row["numbers"].get(rule["number"], [])
            start = rule.get("starts", {}).get(str(one.place.get(rule.get("start", ""))), 1)
            if len(numbers) >= start:
                mean, std = (number * rule.get("times", 1) for number in numbers[start - 1])
                size = str(rule.get("size", ""))
                return OurNumber(rule["study"], mean, std, len(row["seeds"]), size)
    return None


def _filled(text: str, place: Place) -> Any:
    """A setting of a rule: "{alpha}" is the value itself, other text is filled in."""
    alone = text.removeprefix("{").removesuffix("}")
    return place[alone] if text == f"{{{alone}}}" and alone in place else text.format_map(place)


def _same(setting: Any, wanted: Any) -> bool:
    """Is a setting of a study, perhaps a kind with settings of its own, the one that a rule names?"""
    kind = setting.get("kind") if isinstance(setting, Mapping) else setting
    return bool(wanted in (setting, kind))


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} must be the published numbers of a paper, in TOML. Got: {error}. Name a folder such as "
            "studies/papers/dimc."
        ) from error


def _ours(folder: Path) -> dict[str, Any]:
    """What studies of this paper gave, by the study's name; nothing before the first one is taken."""
    file = folder / OURS
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def taken(folder: Path, found: StudyFolder) -> dict[str, Any]:
    """The content of ours.json with what a study of this paper gave in this folder of results."""
    told, results = _toml(folder / PUBLISHED), Results.read(found)
    rules = [rule for table in told["table"] for rule in table.get("ours", [])]
    names = sorted({rule["number"] for rule in rules if rule["study"] == results.study})
    require(
        bool(names),
        "--take",
        f"the results of a study that {folder / PUBLISHED} names",
        results.study,
        f"It names {', '.join(sorted({rule['study'] for rule in rules})) or 'none'}.",
    )
    rows = [
        {
            "settings": dict(row.settings),
            "seeds": sorted(row.metrics),
            "numbers": {name: _numbers(results, row, name) for name in names},
        }
        for row in results.rows
        if row.final
    ]
    origins = (one for cell in found.journals() for one in cell.origins.values())
    origin = next(origins, {})  # results of FedTide 0.1 have none
    made = {key: origin[key] for key in ("fedtide", "source", "data") if key in origin}
    made |= {"date": date.today().isoformat(), "rows": rows}
    return dict(sorted({**_ours(folder), results.study: made}.items()))


def _numbers(results: Results, row: ResultRow, name: str) -> list[list[float]]:
    """Mean and deviation of a metric, or of one number as a paper prints it for each start."""
    runs = [row.runs[seed] for seed in row.metrics]
    readings = printed(runs, results.transition_rounds)
    if name in readings:
        return [[round(one["mean"], 6), round(one["std"], 6)] for one in readings[name]]
    found = row.numbers.get(name)
    return [[round(found.mean, 6), round(found.std, 6)]] if found else []
