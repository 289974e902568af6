"""Kinds: the classes that a name may stand for, in study files and from Python.

Every base class (algorithms, models, partitions ...) has its `Kinds`: those of FedTide itself and those that
installed packages add by entry points such as `fedtide.algorithms`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedtide.core.errors import ConfigError, choices, require

NO_KINDS: Mapping[str, type] = {}


class Kinds(Mapping[str, type]):
    """The kinds of a base class by name: the built-in ones, then those of installed packages.

    A package's class is imported only when it is looked up, and a package cannot replace a built-in kind.
    `room` is the plural that `fedtide list` and the entry point `fedtide.<room>` use; `usual` is the kind of
    a table in a study file that names none ("": it must name one).
    """

    def __init__(
        self, room: str, base: type, built_in: Mapping[str, type], usual: str = ""
    ) -> None:
        self.room = room
        self.base = base
        self.built_in = built_in
        self.usual = usual

    def __getitem__(self, kind: str) -> type:
        return self.built_in[kind] if kind in self.built_in else self._import(self._added()[kind])

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from (kind for kind in sorted(self._added()) if kind not in self.built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kind: object) -> bool:
        return kind in self.built_in or kind in self._added()

    def _added(self) -> dict[str, list[EntryPoint]]:
        """The entry points of installed packages by name.

        Read anew each time, because a package may be installed while a notebook is open.
        """
        added: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=f"fedtide.{self.room}"):
            if point not in added.setdefault(point.name, []):  # one package may lie on two paths
                added[point.name].append(point)
        return added

    def _import(self, points: list[EntryPoint]) -> type:
        """The class behind a name that installed packages add."""
        point, *others = points
        must = (
            f"fedtide.{self.room}: {point.name!r} must be a class of {self.base.__name__} "
            "in one package."
        )
        if others:
            got = " and ".join(sorted(other.value for other in points))
            raise ConfigError(f"{must} Got {got}. Remove one of the packages.")
        try:
            found = point.load()
        except Exception as error:  # importing a package may raise any exception
            got = f"{point.value}, which fails to import: {type(error).__name__}: {error}"
            raise ConfigError(f"{must} Got {got}. Correct or remove the package.") from error
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise ConfigError(f"{must} Got {point.value}. Correct or remove the package.")
        return found


def settle(
    whole: object, where: str, field: str, base: type, known: Mapping[str, type] = NO_KINDS
) -> None:
    """Make a field of a frozen dataclass an object of `base`, or raise a `ConfigError`.

    If the field holds the name of a known kind, it is replaced by that kind with its default settings.
    """
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
    """Raise a `ConfigError` unless a function's argument is an object of the class `kind`."""
    got = value if isinstance(value, str | Path) else type(value).__name__
    require(isinstance(value, kind), where, f"given a {kind.__name__}", got, do)


def check_is_dataclass(kind: type, where: str) -> None:
    """Raise a `ConfigError` if a class has settings of its own but is no dataclass: they would be ignored."""
    hints = vars(kind).get("__annotations__", {})
    own = [name for name, hint in hints.items() if "ClassVar" not in str(hint)]
    known = getattr(kind, "__dataclass_fields__", {})
    forgotten = [name for name in own if name not in known]
    require(
        not forgotten,
        where,
        f"a dataclass: {kind.__name__} has the setting {forgotten[0] if forgotten else ''!r}",
        f"class {kind.__name__} without @dataclass",
        "Write @dataclass(frozen=True, kw_only=True) above the class.",
    )
