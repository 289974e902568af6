"""JSON Schema of study files, for editors that complete and check them (Taplo, Even Better TOML)."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedtide.config.build import LARGEST, fields_of, is_settable
from fedtide.measure.recovery import Recovery
from fedtide.run.experiment import Experiment
from fedtide.run.kinds import KINDS
from fedtide.run.ranges import Tune
from fedtide.show.kinds import first_sentence
from fedtide.show.trackers import Tracker

Schema = dict[str, Any]

PLAIN: dict[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "maximum": LARGEST},
    float: {"type": "number"},
    str: {"type": "string"},
    list: {"type": "array"},
    dict: {"type": "object"},
}
OWN = {"type": "string", "pattern": r"\.py:", "description": "file.py:Class, a kind of your own"}


def study_schema() -> Schema:
    """The schema of a whole study file."""
    sections = of_table(Experiment)["properties"]
    return {
        "definitions": {base.__name__: _of_kind(base) for base in KINDS},  # kinds may contain kinds
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "FedTide study",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "question": {"type": "string", "description": "What the study asks."},
            "transition_rounds": {"type": "integer", "minimum": 1},
            "recovery": of_table(Recovery),
            "target": {"type": "number", "description": 'The score of "rounds to 60 %": 0.6.'},
            "columns": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The metrics that tables show.",
            },
            **sections,
            "seed": {"type": "integer"},
            "compare": {
                "type": "object",
                "description": "The grid: a list of values for each setting, and seeds.",
            },
            "case": {
                "type": "array",
                "items": {"type": "object", "required": ["name"]},
                "description": "Named variants, each with settings of its own.",
            },
            "tune": _of_search(),
            "tuned": {"type": "object", "description": "Values that fedtide tune has chosen."},
            "published": {"type": "array", "items": {"type": "object"}},
            "track": {"type": "array", "items": of(Tracker)},
        },
    }


def _of_search() -> Schema:
    """The table [tune]: its own settings, and ranges of any setting of a method."""
    return {**of_table(Tune), "additionalProperties": True}


def of(hint: Any) -> Schema:
    """The schema of a value of this type."""
    origin = get_origin(hint)
    if (origin or hint) in KINDS:
        return {"$ref": f"#/definitions/{(origin or hint).__name__}"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(part) for part in get_args(hint) if is_settable(part)]}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": of(get_args(hint)[0])}
    if is_dataclass(origin or hint):
        return of_table(origin or hint)
    return dict(PLAIN[origin or hint])


def of_table(kind: type, more: Mapping[str, Schema] | None = None) -> Schema:
    """The schema of a table that becomes this dataclass."""
    hints = get_type_hints(kind)
    properties = {key: of(hints[name]) for key, name in fields_of(kind).items()}
    return {
        "type": "object",
        "description": first_sentence(kind),
        "additionalProperties": False,
        "properties": {**(more or {}), **properties},
    }


def _of_kind(base: type) -> Schema:
    """A name of a kind, or a table of its settings; a kind of your own may have any settings.

    A table without a kind is accepted, because the grid may decide the kind.
    """
    known = KINDS[base]
    tables = [of_table(kind, {"kind": {"const": name}}) for name, kind in known.items()]
    own = {"type": "object", "required": ["kind"], "properties": {"kind": OWN}}
    if getattr(base, "forgives", False):  # settings of other kinds are left out with a warning
        tables = [{**table, "additionalProperties": True} for table in tables]
    return {"anyOf": [{"enum": list(known)}, OWN, *tables, own]}
