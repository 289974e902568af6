"""What made the results of a study: versions, data and settings, as the folders of its runs record them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MADE = ("fedtide", "source", "torch", "processor")  # of an origin; runs of one study should agree
TOLD = ("fedtide", "source", "own_files", "torch", "numba", "processor", "data", "settings")
NAMED = 3  # different values; further ones are left out

Origin = Mapping[str, Any]  # see fedtide.run.origin


def mixed(origins: Iterable[Origin]) -> list[str]:
    """A sentence if the runs of a study were made by different code or on different processors."""
    known = [one for one in origins if one]
    differ = {
        key: dict.fromkeys(str(one.get(key, "")) for one in known)
        for key in MADE
        if len({one.get(key) for one in known}) > 1
    }
    if not differ:
        return []
    words = [f"{key} {' and '.join(list(values)[:NAMED])}" for key, values in differ.items()]
    return [f"The runs were not all made in the same way: {'; '.join(words)}."]


def made_by(origins: Iterable[Origin]) -> dict[str, str]:
    """Versions and checksums behind the runs of a setting; where its seeds differ, all of their values."""
    known = [one for one in origins if one]
    values = {key: dict.fromkeys(str(one.get(key, "")) for one in known) for key in TOLD}
    return {key: " and ".join(found) for key, found in values.items() if any(found)}
