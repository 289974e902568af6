"""Study files: a TOML file with changes from the command line, as a grid of experiments."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide.config import tuning
from fedtide.config.build import Table, build, convert, fields_of, folder
from fedtide.core.errors import ConfigError, choices
from fedtide.measure.recovery import Recovery
from fedtide.run.experiment import Experiment
from fedtide.run.ranges import Ranges, checked
from fedtide.run.study import Cell, Study
from fedtide.show.trackers import Tracker

STUDY_KEYS = (
    "question",
    "transition_rounds",
    "recovery",
    "target",
    "columns",
    "compare",
    "case",
    "published",
    "track",
    "tune",
    "tuned",
)


def load(path: str | Path, changes: Sequence[str] = (), seeds: Sequence[int] = ()) -> Study:
    """Read the study in a file and apply changes (`["train.lr=0.1"]`) and other seeds."""
    path = Path(path)
    table, source = _read(path)
    for change in changes:
        _change(table, change)
        source += f"# --set {change}\n"
    if seeds:
        source += f"# --seed {' '.join(map(str, seeds))}\n"
        put(table, "compare.seed", list(seeds), "--seed")
    before = folder.set(path.parent)
    try:
        return study(path.stem, table, source)
    finally:
        folder.reset(before)


def _read(path: Path) -> tuple[Table, str]:
    """The table in a TOML file, and its text."""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} must be a study file. Got no such file. Check the path."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} must be a TOML file. Got: {error}. Correct the file.") from error


def _change(table: Table, change: str) -> None:
    """Apply `key=value` of `--set` to a table; refuse a key that the study compares."""
    key, value = assigned(change, "--set")
    for compared in dict(_flat(convert(dict, table.get("compare", {}), "compare"))):
        if f"{compared}.".startswith(f"{key}.") or f"{key}.".startswith(f"{compared}."):
            raise ConfigError(
                f"--set {key}: the grid of the study decides this. Got {change!r}. Write "
                f"--set 'compare.{compared}=[...]' with the values to compare."
            )
    put(table, key, value, "--set")


def assigned(text: str, option: str) -> tuple[str, Any]:
    """The key and the value in `key=value`, as an option of the command has it."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign:
        example = {"--set": "train.lr=0.1", "--reference": "start=previous"}[option]
        raise ConfigError(f"{option} must be key=value. Got {text!r}. Write {option} {example}")
    return key, _literal(value)


def _literal(text: str) -> Any:
    """A value of `--set`: a TOML value, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def study(name: str, table: Table, source: str = "") -> Study:
    """The study that a table describes; `source` is the text it was read from."""
    base = {key: value for key, value in table.items() if key not in STUDY_KEYS}
    known = {*fields_of(Experiment), *STUDY_KEYS}
    if wrong := next((key for key in base if key not in known), None):
        raise ConfigError(f"{wrong}: a study has no such setting. {choices(wrong, known)}")
    grid = dict(_flat(convert(dict, table.get("compare", {}), "compare")))
    seeds = _listed(grid.pop("seed", [base.pop("seed", 0)]), "compare.seed")
    settings, ranges = tuning.split(convert(dict, table.get("tune", {}), "tune"), "tune")
    chosen = tuning.chosen(convert(dict, table.get("tuned", {}), "tuned"))
    return Study(
        name=name,
        cells=tuple(_cells(base, _cases(table.get("case", [{}])), grid, ranges, chosen)),
        tune=settings if "tune" in table else None,
        tuned=tuning.found(table["tuned"]) if "tuned" in table else None,
        seeds=tuple(convert(int, seed, "compare.seed") for seed in seeds),
        question=convert(str, table.get("question", ""), "question"),
        transition_rounds=convert(int, table.get("transition_rounds", 10), "transition_rounds"),
        recovery=build(Recovery, convert(dict, table.get("recovery", {}), "recovery"), "recovery"),
        target=convert(float | None, table.get("target"), "target") if "target" in table else None,
        columns=convert(tuple[str, ...], table.get("columns", []), "columns"),
        published=tuple(
            convert(dict, row, "published")
            for row in convert(list, table.get("published", []), "published")
        ),
        track=convert(tuple[Tracker, ...], table.get("track", []), "track"),
        source=source,
    )


def _cells(
    base: Table, cases: Sequence[Table], grid: Table, ranges: Ranges, chosen: tuning.Chosen
) -> Iterator[Cell]:
    """The experiments of a study: every case with every combination of the compared values.

    `ranges` are those of [tune], to which a case may add others; `chosen` are values that were tuned.
    """
    for number, case in enumerate(cases):
        of_case = {key: value for key, value in case.items() if key not in ("name", "tune")}
        _, own = tuning.split(case.get("tune", {}), f"case[{number}].tune", only_ranges=True)
        for values in itertools.product(*(_listed(v, f"compare.{k}") for k, v in grid.items())):
            combination = dict(zip(grid, values, strict=True))
            changed = merged(base, of_case)
            settings = {"case": case["name"], **combination} if "name" in case else combination
            for key, value in combination.items():
                put(changed, key, value, "compare")
            for key, value in chosen(settings).items():
                put(changed, key, value, "tuned.cell")
            e = build(Experiment, changed, "")
            yield Cell(settings, e, checked({**ranges, **own}, e, list(grid)))


def _cases(raw: Any) -> list[Table]:
    """The [[case]] tables; each must have a name, unless it is empty."""
    cases = [convert(dict, case, f"case[{n}]") for n, case in enumerate(convert(list, raw, "case"))]
    for number, case in enumerate(cases):
        if case and not isinstance(case.get("name"), str):
            raise ConfigError(
                f"case[{number}].name must be a text. Got {case.get('name')!r}. Name the case in a word."
            )
    return cases


def _listed(values: Any, where: str) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ConfigError(
            f"{where} must be a list of values to compare. Got {values!r}. "
            "Write [1, 2] or ['a', 'b'], texts in quotes."
        )
    return values


def put(table: Table, key: str, value: Any, where: str) -> None:
    """Set `a.b.c` in nested tables, or merge a table into the one that is there."""
    *path, last = key.split(".")
    for part in path:
        inner = table.get(part, {})
        inner = {"kind": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict):
            raise ConfigError(f"{where}: {key} must lie in a table. Got {part} = {inner!r}.")
        table[part] = dict(inner)
        table = table[part]
    table.update(merged(table, {last: value}))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """`base` with the values of `over`; of two tables that name a kind, the one in `over` counts alone.

    A kind may be written as its name alone; settings without a kind are for whichever kind joins them.
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, str) and isinstance(value, dict):
            below = {"kind": below}
        if isinstance(below, dict) and isinstance(value, str) and "kind" not in below:
            value = {"kind": value}
        joins = isinstance(below, dict) and isinstance(value, dict)
        joins = joins and not ("kind" in below and "kind" in value)  # type: ignore[operator]
        result[key] = merged(below, value) if joins else value  # type: ignore[arg-type]
    return result


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as pairs of a dotted key and a value."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
