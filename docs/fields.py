"""For mkdocstrings: a table of the fields of a class, described by the comments beside them."""

import re
from html import escape
from typing import Any

import griffe

COMMENT = re.compile(r"\s#\s(.+)$", re.M)


class Fields(griffe.Extension):
    """Add an `Attributes` section to the docstrings of dataclasses and NamedTuples."""

    def on_class_members(self, *, cls: griffe.Class, **rest: Any) -> None:
        """Called when the members of a class have been read from its source."""
        said = {
            each.name: _comment(cls, each) for each in cls.attributes.values() if _is_field(each)
        }
        is_tuple = any(str(base) == "NamedTuple" for base in cls.bases)
        if cls.docstring and (is_tuple or any(said.values())):  # a dataclass has its signature
            rows = [f"    {name}: {comment or '&nbsp;'}" for name, comment in said.items()]
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(rows)


def _is_field(each: griffe.Attribute) -> bool:
    is_shared = "ClassVar" in str(each.annotation) or "property" in each.labels
    return each.annotation is not None and not is_shared and not each.name.startswith("_")


def _comment(cls: griffe.Class, field: griffe.Attribute) -> str:
    """The comment on the lines of a field, as HTML."""
    lines = cls.lines_collection[cls.filepath][field.lineno - 1 : field.endlineno]
    return escape(" ".join(COMMENT.findall("\n".join(lines))), quote=False)
