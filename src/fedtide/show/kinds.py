"""`fedtide list` in the terminal: all kinds of a section, or one kind with all its settings."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedtide.core.kinds import Kinds

WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
PLACES = {  # where a study file names a kind of each room, if it is not the section of that name
    "algorithms": "algorithm",
    "attacks": "attack",
    "defences": "defence",
    "engines": "engine",
    "models": "train.model",
    "networks": "network",
    "optimisers": "train.optimiser",
    "partitions": "data.partition",
    "populations": "population",
    "schedules": "train.schedule",
    "starts": "start",
    "stores": "data.stores",
}


def first_sentence(kind: type) -> str:
    """The first paragraph of a kind's docstring, in one line."""
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def explained(
    room: str, name: str, kind: type, settings: Mapping[str, Any], kinds: Mapping[type, Kinds]
) -> Iterator[tuple[str, str]]:
    """One kind as paragraphs: a style and a text for each.

    `settings` are its settings and defaults; `kinds` has all kinds of each base class.
    """
    yield "bold", name
    for paragraph in (inspect.getdoc(kind) or "").split("\n\n"):
        yield "", paragraph if paragraph.startswith(" ") else paragraph.replace("\n", " ")
    if paper := _paper(kind):
        yield "", paper
    yield "bold", "settings"
    hints, notes = get_type_hints(kind), _comments(kind)
    for key, default in settings.items():
        field = key if key in hints else f"{key}_"
        must = allowed(hints[field], kinds)
        value = "must be set" if _is_required(kind, field) else f"default {_toml(default)}"
        yield "", f"  {key}: {must}; {value}" + (f". {notes[field]}" if field in notes else "")
    if not settings:
        yield "", "  none"
    yield "bold", "in a study file"
    yield "", example(room, name, settings)


def _paper(kind: type) -> str:
    """The paragraph at the top of the kind's module that names a paper, by its title or its year."""
    first, *rest = (inspect.getdoc(inspect.getmodule(kind)) or "").split("\n\n")
    titled = (part for part in (first, *rest[:1]) if re.search(r'"[^"]{20,}"', part))
    dated = first if re.search(r"\b(19|20)\d\d\b", first) else ""
    return next(titled, dated).replace("\n", " ")


def _comments(kind: type) -> dict[str, str]:
    """The comment behind each field, from the source."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        found |= dict(re.findall(r"^    (\w+): [^#\n]*#\s*(?!noqa)(.+)$", source, re.M))
    return found


def allowed(hint: Any, kinds: Mapping[type, Kinds]) -> str:
    """The values that a setting may have, in words."""
    origin = get_origin(hint)
    if (origin or hint) in kinds:
        return " or ".join(kinds[origin or hint])
    if origin is Literal:
        return " or ".join(map(_toml, get_args(hint)))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(allowed(part, kinds) for part in get_args(hint)))
    if origin is tuple:
        return f"list of: {allowed(get_args(hint)[0], kinds)}"
    base = origin or hint
    if is_dataclass(base):
        return f"table of {', '.join(f.name for f in fields(base))}"
    return WORDS.get(base) or ("not set" if base is type(None) else "object, from Python only")


def _is_required(kind: type, name: str) -> bool:
    field = next(f for f in fields(kind) if f.name == name)
    return field.default is MISSING and field.default_factory is MISSING


def example(room: str, name: str, settings: Mapping[str, Any]) -> str:
    """A part of a study file that uses the kind, with its simple settings at their defaults."""
    place = PLACES.get(room, room)
    section, _, key = place.partition(".")
    simple = {k: v for k, v in settings.items() if isinstance(v, bool | int | float | str)}
    if key:
        inner = ", ".join([f'kind = "{name}"', *(f"{k} = {_toml(v)}" for k, v in simple.items())])
        return f"[{section}]\n{key} = {{ {inner} }}"
    lines = [f"[{section}]", f'kind = "{name}"', *(f"{k} = {_toml(v)}" for k, v in simple.items())]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """A default as a study file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) and value == int(value) else str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if is_dataclass(value):
        return "{}"
    return (
        str(list(value)) if isinstance(value, tuple) else "not set" if value is None else str(value)
    )
