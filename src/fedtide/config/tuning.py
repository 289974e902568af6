"""The tables [tune] and [tuned] of a study file: what is searched, and the values that were chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedtide.config.build import Table, build, convert, folder
from fedtide.core.errors import ConfigError
from fedtide.run.ranges import Ranges, Tune, read_range

if TYPE_CHECKING:
    from fedtide.run.tune import Tuned

Chosen = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # the values of a setting of the grid

SETTINGS = tuple(f.name for f in fields(Tune))
HISTORY = "{}.jsonl"  # beside the tuned study


def split(table: Table, where: str, only_ranges: bool = False) -> tuple[Tune, Ranges]:
    """The settings of a search, and its ranges by dotted setting."""
    table = convert(dict, table, where)
    settings = {key: value for key, value in table.items() if key in SETTINGS}
    if settings and only_ranges:
        raise ConfigError(
            f"{where}.{next(iter(settings))}: every case has the same budget. Put it into [tune]."
        )
    given = {key: value for key, value in table.items() if key not in SETTINGS}
    ranges = {key: read_range(raw, key) for key, raw in _ranges(given)}
    return build(Tune, settings, where), ranges


def _ranges(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as pairs of a dotted setting and its range."""
    for key, value in table.items():
        if isinstance(value, dict) and value and not {"low", "high"} & value.keys():
            yield from _ranges(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def chosen(table: Table) -> Chosen:
    """The values that a search has chosen for each setting of the grid."""
    cells = [
        convert(dict, cell, "tuned.cell")
        for cell in convert(list, table.get("cell", []), "tuned.cell")
    ]

    def of(settings: Mapping[str, Any]) -> Mapping[str, Any]:
        if not table:
            return {}
        for cell in cells:
            if cell.get("settings") == settings:
                return dict(convert(dict, cell.get("values", {}), "tuned.cell.values"))
        raise ConfigError(
            f"tuned.cell must have the values of every setting of the grid. Got none for {dict(settings)}. "
            "Search again with fedtide tune, or add them."
        )

    return of


def found(table: Table) -> Mapping[str, Any]:
    """What the folder of a tuned study records: the table [tuned] and the search history, if it is there."""
    about = {key: value for key, value in table.items() if key not in ("cell", "history")}
    path = folder.get() / convert(str, table.get("history", ""), "tuned.history")
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines()
        return {**about, "cells": [json.loads(line) for line in lines]}
    return {**about, "cells": table.get("cell", [])}


def tuned_files(name: str, tuned: Tuned) -> dict[str, str]:
    """The files that a search writes: the study with the chosen values, and the history, by name."""
    about, history = tuned.as_json(), HISTORY.format(name)
    cells = about.pop("cells")
    lines = [
        "",
        "# Written by fedtide tune: values that were chosen on validation examples. The search history is",
        f"# in {history}. Run this study with: fedtide run {name}.toml",
        "[tuned]",
        f"history = {toml(history)}",
        *(f"{key} = {toml(value)}" for key, value in about.items()),
    ]
    for cell in cells:
        lines += ["", "[[tuned.cell]]", f"settings = {toml(cell['settings'])}"]
        lines += [f"values = {toml(cell['values'])}"]
    source = tuned.searched.source.rstrip("\n")
    return {
        f"{name}.toml": "\n".join([source, *lines, ""]),
        history: "".join(json.dumps(cell) + "\n" for cell in cells),
    }


def toml(value: Any) -> str:
    """A value of JSON as TOML."""
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(str(key))} = {toml(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
