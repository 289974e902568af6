"""Parts of an experiment as Python gives them: objects, or names that stand for a kind with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedtide.core.errors import ConfigError, choices, require

NO_KINDS: Mapping[str, type] = {}


def settle(
    whole: object, where: str, field: str, base: type, known: Mapping[str, type] = NO_KINDS
) -> None:
    """Let a field of a frozen dataclass hold a `base`: a text is replaced by the known kind of that name."""
    value = getattr(whole, field)
    if isinstance(value, base):
        return
    example = next(iter(known.values()), base).__name__
    if not isinstance(value, str) or not known:
        named = ", or the name of a kind of it" if known else ""
        do = f"Write {field}={value.__name__ if isinstance(value, type) else example}(...)."
        require(False, where, f"an object of the class {base.__name__}{named}", value, do)
    if value not in known:
        raise ConfigError(
            f"{where}: {value!r} is not known. {choices(value, known)} "
            f"With settings, write {field}={example}(...)."
        )
    object.__setattr__(whole, field, known[value]())


def expect(value: object, kind: type, where: str, do: str) -> None:
    """Refuse an argument of a function that is not of this kind."""
    got = value if isinstance(value, str | Path) else type(value).__name__
    require(isinstance(value, kind), where, f"given a {kind.__name__}", got, do)
