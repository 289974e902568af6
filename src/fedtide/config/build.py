"""Tables to objects: every value is checked against the type of the field that it becomes.

A table becomes the frozen dataclass of its section. Where a base class has several kinds, `kind` names one:
`algorithm = "fedprox"` is short for `algorithm = { kind = "fedprox" }`.
"""

from __future__ import annotations

import logging
import math
import sys
import types
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedtide.core.errors import ConfigError, choices
from fedtide.core.kinds import Kinds, check_is_dataclass
from fedtide.run.kinds import KINDS

Table = dict[str, Any]

log = logging.getLogger("fedtide")

LARGEST = 10**8  # whole numbers: clients, rounds, steps
FARTHEST = 1e38  # other numbers: models are made of 32-bit floats
WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}

folder = ContextVar("the study file's folder", default=Path())


def build(kind: type, table: Table, where: str) -> Any:
    """Make an object of this dataclass from a table of its settings; `where` is the table's name."""
    hints, known = get_type_hints(kind), fields_of(kind)
    prefix = f"{where}." if where else ""
    given = {}
    for key, raw in table.items():
        if key == "kind" and where and "kind" not in known:
            continue
        if key not in known:
            raise ConfigError(
                f"{prefix}{key}: {kind.__name__} has no such setting. {choices(key, known)}"
            )
        given[known[key]] = convert(hints[known[key]], raw, f"{prefix}{key}")
    for key, name in known.items():
        if name not in given and not _has_default(kind, name):
            raise ConfigError(
                f"{prefix}{key} must be set, because {kind.__name__} has no default for it. Got nothing. "
                "Add it to the study file."
            )
    return kind(**given)


def convert(hint: Any, raw: Any, where: str) -> Any:
    """Convert a TOML value to the type that a field declares."""
    hint = get_origin(hint) if get_origin(hint) in KINDS else hint
    if hint in KINDS:
        return _of_kind(KINDS[hint], raw, where)
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if is_settable(part)]
        lists = [part for part in parts if get_origin(part) is tuple and isinstance(raw, list)]
        words = [part for part in parts if get_origin(part) is Literal and isinstance(raw, str)]
        return convert((lists or words or parts)[0], raw, where)
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
    """Check a number, a text, a list or a table."""
    hint = get_origin(hint) or hint
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


def _of_kind(known: Kinds, raw: Any, where: str) -> Any:
    """Make an object from `"kind"` or `{ kind = "kind", ... }`; `file.py:Class` is a user's own kind."""
    table = {"kind": raw} if isinstance(raw, str) else convert(dict, raw, where)
    kind = table.get("kind", known.usual)
    if isinstance(kind, str) and ":" in kind:
        given = {key: value for key, value in table.items() if key != "kind"}
        chosen = own(known.base, kind, where, given)
        if not isinstance(chosen, type):
            return chosen
    elif isinstance(kind, str) and kind in known:
        chosen = known[kind]
    else:
        got = f"{kind!r} is not known" if "kind" in table else "it has no kind"
        hint = known.base.hint(str(kind)) if hasattr(known.base, "hint") else ""
        raise ConfigError(f"{where}: {got}. {hint or choices(str(kind), known)}")
    if getattr(known.base, "forgives", False):
        table = _without_settings_of_others(chosen, known, table, where)
    return build(chosen, table, where)


def _without_settings_of_others(chosen: type, known: Kinds, table: Table, where: str) -> Table:
    """Leave out settings that only other kinds of the same base have, with a warning for each.

    For bases with `forgives = True`, whose kind is often changed on the command line: the table of a study
    that uses one kind (`engine.kind = "ray"`) then also serves another (`--set engine.kind=loop`).
    """
    kept, names = dict(table), fields_of(chosen)
    for key in sorted(table.keys() - names.keys() - {"kind"}):
        others = [name for name, other in known.items() if key in fields_of(other)]
        if others:
            del kept[key]
            _warn(
                f"{where}.{key} is a setting of kind = {' or '.join(map(repr, others))}. "
                f"Got kind = {table.get('kind', known.usual)!r}, which does not use it."
            )
    return kept


@cache
def _warn(sentence: str) -> None:
    """Log a warning once, not for every cell of a grid."""
    log.warning(sentence)


def own(base: type, kind: str, where: str, given: Table) -> Any:
    """Find the class that `file.py:Class` names; the path is relative to the study's folder.

    Some bases adopt other things: a class of nn.Module is a model, a function is a probe. These come back as
    objects, made with the settings that are `given`.
    """
    name, _, member = kind.rpartition(":")
    file = (folder.get() / name).resolve()
    must = f"{where} must be a known kind or file.py:Class, a class of {base.__name__} in a file."
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(f"{must} Got {kind!r}: there is no file {name}. Check the path.")
    if not file.parent.name or "." in file.parent.name + file.stem:
        raise ConfigError(
            f"{must} Got {kind!r}: a folder or file with a dot in its name. Rename {file.parent.name!r}."
        )
    module = _imported(file, f"{must} Got {kind!r}")
    found = getattr(module, member, None)
    if isinstance(found, type) and issubclass(found, base):
        check_is_dataclass(found, where)
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise ConfigError(f"{must} Got {kind!r}, which does not define {', '.join(missing)}.")
        return found
    adopted = base.adopt(found, given) if found and hasattr(base, "adopt") else None
    if adopted is None:
        problem = "no such class. Check the name."
        if found is not None:
            problem = f"{member}, which is no such class. Let it inherit from {base.__name__}."
        raise ConfigError(f"{must} Got {kind!r}: {name} has {problem}")
    return adopted


def _imported(file: Path, must: str) -> types.ModuleType:
    """Import a file as a module of a package named like its folder, so that other processes find it too.

    The file may import those beside it, as a script in that folder does.
    """
    for place in (str(file.parent.parent), str(file.parent)):
        if place not in sys.path:  # which other processes inherit
            sys.path.append(place)
    try:
        module = import_module(f"{file.parent.name}.{file.stem}")
    except Exception as error:  # the user's file may raise any exception
        raise ConfigError(f"{must}, which fails to import: {error!r}. Correct the file.") from error
    if Path(str(module.__file__)).resolve() != file:
        raise ConfigError(
            f"{must}: {module.__name__} is already {module.__file__}. Rename the folder."
        )
    return module


def fields_of(kind: type) -> dict[str, str]:
    """The settings that a study file may give to this kind, each with the field that it becomes.

    A trailing underscore is left out: `lambda` becomes `lambda_`.
    """
    hints = get_type_hints(kind)
    return {f.name.rstrip("_"): f.name for f in fields(kind) if is_settable(hints[f.name])}


def _has_default(kind: type, name: str) -> bool:
    found = next(f for f in fields(kind) if f.name == name)
    return found.default is not MISSING or found.default_factory is not MISSING


def is_settable(hint: Any) -> bool:
    """Can a study file give this? Functions, modules and tensors come from Python only."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(is_settable(part) for part in get_args(hint))
    base = get_origin(hint) or hint
    return base in KINDS or base in WORDS or base in (Literal, tuple) or is_dataclass(base)


def settings(kind: type) -> dict[str, Any]:
    """The settings that a study file may give to this kind, with their defaults."""
    defaults = {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(kind)
    }
    names = {c: name for known in KINDS.values() for name, c in known.built_in.items()}
    return {
        key: names.get(type(defaults[field]), defaults[field])
        for key, field in fields_of(kind).items()
    }
