"""The runs of studies in a folder: which there are, how far they have come, and how their settings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedtide.record.folder import StudyFolder

ENVIRONMENT = ("fedtide", "torch", "machine")  # that may differ between runs


class ListedRun(NamedTuple):
    """One run of a study, that is, one of its folders."""

    folder: StudyFolder
    about: Mapping[str, Any]  # study.json
    done: int  # runs of cells and seeds that have ended
    total: int
    settings: Mapping[str, str]  # every setting with its values over the cells

    @property
    def begun(self) -> str:
        """Date and time, as far as they are known."""
        return str(self.about.get("begun", ""))[:16].replace("T", " ")


def studies(out: Path) -> list[Path]:
    """The folders of studies in a folder of results; the folder itself, if it is one."""
    if StudyFolder.all_of(out):
        return [out]
    inner = sorted(path for path in out.glob("*") if path.is_dir()) if out.is_dir() else []
    return [path for path in inner if StudyFolder.all_of(path)]


def entry(folder: StudyFolder) -> ListedRun:
    """One run of a study."""
    about = folder.read_json("study.json")
    done = len(list(folder.path.glob("cells/*/seed-*/run.json")))
    return ListedRun(
        folder, about, done, len(about["cells"]) * len(about["seeds"]), settings(folder)
    )


def settings(folder: StudyFolder) -> dict[str, str]:
    """Every setting of a run; one that differs between its cells with all its values."""
    about, found = folder.read_json("study.json"), {}
    if (folder.path / "settings.json").is_file():
        cells = folder.read_json("settings.json")["cells"]
        flat = [dict(flattened({**cell, "label": ""})) for cell in cells]
        keys = dict.fromkeys(key for cell in flat for key in cell)
        for key in keys:
            values = dict.fromkeys(cell[key] for cell in flat if key in cell)
            found[key] = " | ".join(values)
    found["seeds"] = " ".join(map(str, about["seeds"]))
    known = about.get("environment", {})
    return found | {key: str(known.get(key, "")) for key in ENVIRONMENT}


def flattened(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as pairs of a dotted key and a text; a class by its name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, where if key == "is" else f"{where}.{key}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from flattened(item, f"{where}[{number}]")
    else:
        text = str(value)
        is_class = "." in text and text.split()[0].replace(".", "").isidentifier()
        yield where, text.split()[0].rpartition(".")[2] if is_class else text


def varying(found: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings that are not the same in all of these."""
    keys = dict.fromkeys(key for one in found for key in one)
    return [key for key in keys if key and len({one.get(key, "") for one in found}) > 1]
