"""Kinds that installed packages add to study files, by entry points such as `fedtide.algorithms`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from fedtide.core.errors import ConfigError


class Kinds(Mapping[str, type]):
    """The kinds of a room: those of the house, then those of packages, imported only when named.

    A package cannot replace a kind of the house.
    """

    def __init__(self, room: str, base: type, house: Mapping[str, type]) -> None:
        self.group = f"fedtide.{room}"
        self.base = base
        self.house = house

    def __getitem__(self, kind: str) -> type:
        return self.house[kind] if kind in self.house else self._loaded(self._added()[kind])

    def __iter__(self) -> Iterator[str]:
        yield from self.house
        yield from (kind for kind in sorted(self._added()) if kind not in self.house)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kind: object) -> bool:
        return kind in self.house or kind in self._added()

    def _added(self) -> dict[str, list[EntryPoint]]:
        """Who offers what; asked anew each time, because packages come while a notebook is open."""
        added: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if point not in added.setdefault(point.name, []):  # one package may lie on two paths
                added[point.name].append(point)
        return added

    def _loaded(self, points: list[EntryPoint]) -> type:
        point, *others = points
        must = (
            f"{self.group}: {point.name!r} must be a class of {self.base.__name__} in one package."
        )
        if others:
            got = " and ".join(sorted(other.value for other in points))
            raise ConfigError(f"{must} Got {got}. Remove one of the packages.")
        try:
            found = point.load()
        except Exception as error:  # whatever a package of somebody else does when imported
            got = f"{point.value}, which fails to import: {type(error).__name__}: {error}"
            raise ConfigError(f"{must} Got {got}. Mend or remove the package.") from error
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise ConfigError(f"{must} Got {point.value}. Mend or remove the package.")
        return found
