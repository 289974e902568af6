"""Study files: TOML to the objects of the house, with an error that helps for every mistake.

A table becomes the frozen dataclass of its section; where a room offers several kinds, `kind` names the
one (`algorithm = "fedprox"` is short for `algorithm = { kind = "fedprox" }`). Field types are checked.
"""

from __future__ import annotations

import itertools
import math
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedtide.core.errors import ConfigError, choices
from fedtide.data.source import Source
from fedtide.data.stores import Arriving
from fedtide.engines.flower import Terms
from fedtide.engines.kinds import EngineChoice
from fedtide.guard.faults import Faults
from fedtide.guard.privacy import Privacy
from fedtide.measure.evaluation import Evaluation
from fedtide.network.device import Fleet
from fedtide.record.checkpoint import Checkpointing
from fedtide.run.experiment import Experiment
from fedtide.run.kinds import KINDS, kinds
from fedtide.run.study import Cell, Study
from fedtide.show.trackers.kinds import Tracker
from fedtide.training.train import Train

Table = dict[str, Any]

USUAL: dict[type, str] = {Source: "dataset"}  # the kind of a section that does not say
SECTIONS = (Arriving, Train, EngineChoice, Terms, Evaluation, Fleet, Faults, Privacy, Checkpointing)
LARGEST = 10**8  # of whole numbers: clients, rounds, steps
FARTHEST = 1e38  # of others: models are made of 32-bit floats
STUDY_KEYS = ("question", "transition_rounds", "compare", "case", "published", "track")
WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}

_folder = ContextVar("the study file's folder", default=Path())


def load(path: str | Path, changes: Sequence[str] = (), seeds: Sequence[int] = ()) -> Study:
    """The study in a file, with changes (`["train.lr=0.1"]`) and other seeds applied."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} must be a study file. Got no such file. Check the path."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} must be a TOML file. Got: {error}. Mend it there.") from error
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign:
            raise ConfigError(f"--set must be key=value. Got {change!r}. Write --set train.lr=0.1")
        for compared in dict(_flat(convert(dict, table.get("compare", {}), "compare"))):
            one, other = f"{compared}.", f"{key.strip()}."
            if one.startswith(other) or other.startswith(one):
                raise ConfigError(
                    f"--set {key.strip()}: the grid of the study decides this. Got {change!r}. Write "
                    f"--set 'compare.{compared}=[...]' with the values to compare."
                )
        text += f"# --set {change}\n"
        put(table, key.strip(), _literal(value.strip()), "--set")
    if seeds:
        text += f"# --seed {' '.join(map(str, seeds))}\n"
        put(table, "compare.seed", list(seeds), "--seed")
    place = _folder.set(path.parent)
    try:
        return study(path.stem, table, text)
    finally:
        _folder.reset(place)


def study(name: str, table: Table, source: str = "") -> Study:
    """The study that a table describes."""
    base = {key: value for key, value in table.items() if key not in STUDY_KEYS}
    grid = dict(_flat(convert(dict, table.get("compare", {}), "compare")))
    seeds = _listed(grid.pop("seed", [base.pop("seed", 0)]), "compare.seed")
    cells = []
    for case in _cases(table.get("case", [{}])):
        for values in itertools.product(*(_listed(v, f"compare.{k}") for k, v in grid.items())):
            combination = dict(zip(grid, values, strict=True))
            changed = merged(base, {key: value for key, value in case.items() if key != "name"})
            for key, value in combination.items():
                put(changed, key, value, "compare")
            settings = {"case": case["name"], **combination} if "name" in case else combination
            cells.append(Cell(settings, build(Experiment, changed, "")))
    return Study(
        name=name,
        cells=tuple(cells),
        seeds=tuple(convert(int, seed, "compare.seed") for seed in seeds),
        question=convert(str, table.get("question", ""), "question"),
        transition_rounds=convert(int, table.get("transition_rounds", 10), "transition_rounds"),
        published=tuple(
            convert(dict, row, "published")
            for row in convert(list, table.get("published", []), "published")
        ),
        track=convert(tuple[Tracker, ...], table.get("track", []), "track"),
        source=source,
    )


def build(kind: type, table: Table, where: str) -> Any:
    """An object of this dataclass from a table of its settings."""
    hints = get_type_hints(kind)
    known = {f.name.rstrip("_"): f.name for f in fields(kind) if _settable(hints[f.name])}
    prefix = f"{where}." if where else ""
    settings = {}
    for key, raw in table.items():
        if key == "kind" and where and "kind" not in known:
            continue
        if key not in known:
            raise ConfigError(
                f"{prefix}{key}: {kind.__name__} has no such setting. {choices(key, known)}"
            )
        settings[known[key]] = convert(hints[known[key]], raw, f"{prefix}{key}")
    return kind(**settings)


def convert(hint: Any, raw: Any, where: str) -> Any:
    """A TOML value as the type that a field declares."""
    hint = get_origin(hint) if get_origin(hint) in KINDS else hint
    if hint in KINDS:
        return _of_kind(hint, raw, where)
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if _settable(part)]
        lists = [part for part in parts if get_origin(part) is tuple and isinstance(raw, list)]
        return convert((lists or parts)[0], raw, where)
    if get_origin(hint) is Literal:
        if raw not in get_args(hint):
            raise ConfigError(f"{where}: {raw!r} is not known. {choices(str(raw), get_args(hint))}")
        return raw
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return tuple(
            convert(item, value, f"{where}[{n}]")
            for n, value in enumerate(convert(list, raw, where))
        )
    if is_dataclass(hint):
        return build(hint, convert(dict, raw, where), where)  # type: ignore[arg-type]
    return _plain(hint, raw, where)


def _plain(hint: type, raw: Any, where: str) -> Any:
    fits = isinstance(raw, (int, float) if hint is float else hint)
    if not fits or (isinstance(raw, bool) and hint is not bool):
        raise ConfigError(
            f"{where} must be {WORDS[hint]}. Got {raw!r}. Change it in the study file."
        )
    if isinstance(raw, float) and not math.isfinite(raw):
        raise ConfigError(
            f"{where} must be a finite number. Got {raw!r}. Change it in the study file."
        )
    if hint is float and abs(raw) > FARTHEST:
        raise ConfigError(
            f"{where} must be a number up to {FARTHEST:g}. Got {str(raw)[:40]}. Change it in the study file."
        )
    if hint is str and "\0" in raw:
        raise ConfigError(f"{where} must be a text without null characters. Got {raw!r}.")
    if hint is int and abs(raw) > LARGEST and not where.endswith("seed"):
        raise ConfigError(
            f"{where} must be a whole number of at most {LARGEST:,}. Got {str(raw)[:40]}. "
            "Change it in the study file."
        )
    return float(raw) if hint is float else raw


def _of_kind(base: type, raw: Any, where: str) -> Any:
    """An object from `"kind"` or `{ kind = "kind", ... }`; `file.py:Class` is a kind of the user's own."""
    table = {"kind": raw} if isinstance(raw, str) else convert(dict, raw, where)
    kind, known = table.get("kind", USUAL.get(base)), kinds(base)
    if isinstance(kind, str) and ":" in kind:
        return build(own(base, kind, where), table, where)
    if not isinstance(kind, str) or kind not in known:
        got = f"{kind!r} is not known" if "kind" in table else "it has no kind"
        raise ConfigError(f"{where}: {got}. {choices(str(kind), known)}")
    return build(known[kind], table, where)


def own(base: type, kind: str, where: str) -> type:
    """The class behind `file.py:Class`, the file as seen from the study's folder."""
    name, _, member = kind.rpartition(":")
    file = (_folder.get() / name).resolve()
    must = f"{where} must be a known kind or file.py:Class, a class of {base.__name__} in a file."
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(f"{must} Got {kind!r}: there is no file {name}. Check the path.")
    if not file.parent.name or "." in file.parent.name + file.stem:
        raise ConfigError(
            f"{must} Got {kind!r}: a folder or file with a dot in its name. Rename {file.parent.name!r}."
        )
    module = _imported(file, f"{must} Got {kind!r}")
    found = getattr(module, member, None)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ConfigError(f"{must} Got {kind!r}: {name} has no such class. Check the name.")
    return found


def _imported(file: Path, must: str) -> types.ModuleType:
    """A file as a module of a package of its folder's name, which other processes find in the same way."""
    if str(file.parent.parent) not in sys.path:  # they inherit it
        sys.path.append(str(file.parent.parent))
    try:
        module = import_module(f"{file.parent.name}.{file.stem}")
    except Exception as error:  # whatever the file does
        raise ConfigError(f"{must}, which breaks off: {error!r}. Mend it there.") from error
    if Path(str(module.__file__)).resolve() != file:
        raise ConfigError(
            f"{must}: {module.__name__} is already {module.__file__}. Rename the folder."
        )
    return module


def _settable(hint: Any) -> bool:
    """Can a study file give this? Functions, modules and tensors come from Python only."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_settable(part) for part in get_args(hint))
    base = get_origin(hint) or hint
    return base in KINDS or base in WORDS or base in (Literal, tuple) or base in SECTIONS


def settings(kind: type) -> dict[str, Any]:
    """The settings a study file may give to this kind, with their defaults."""
    hints, plain = get_type_hints(kind), {}
    for f in fields(kind):
        if _settable(hints[f.name]):
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            names = {c: n for known in KINDS.values() for n, c in known.items()}
            plain[f.name.rstrip("_")] = names.get(type(default), default)
    return plain


def put(table: Table, key: str, value: Any, where: str) -> None:
    """Set `a.b.c` in nested tables, or merge a table into what is there."""
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
    """`over` laid on `base`: tables merge, unless the upper one names its kind."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        below = {"kind": below} if isinstance(below, str) and isinstance(value, dict) else below
        joins = isinstance(below, dict) and isinstance(value, dict) and "kind" not in value
        result[key] = merged(below, value) if joins else value  # type: ignore[arg-type]
    return result


def _cases(raw: Any) -> list[Table]:
    cases = [convert(dict, case, f"case[{n}]") for n, case in enumerate(convert(list, raw, "case"))]
    for number, case in enumerate(cases):
        if case and not isinstance(case.get("name"), str):
            raise ConfigError(
                f"case[{number}].name must be a text. Got {case.get('name')!r}. Name the case in a word."
            )
    return cases


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _listed(values: Any, where: str) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ConfigError(
            f"{where} must be a list of values to compare. Got {values!r}. Write [a, b]."
        )
    return values


def _literal(text: str) -> Any:
    """A value of `--set`: TOML, or else a bare word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
