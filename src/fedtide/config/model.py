"""A trained model from the file that a run wrote, as a module of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fedtide.config.build import convert, folder
from fedtide.core.errors import ConfigError, OutputError
from fedtide.models.base import MadeFor, ModelSpec
from fedtide.record.folder import StudyFolder
from fedtide.record.model import filled, read_model

SHOWN = 4  # models of a study that an error lists


def load_model(path: str | Path, module: nn.Module | None = None) -> nn.Module:
    """A trained model with its weights, in evaluation mode.

    `path` is a model.safetensors, the folder of a run (runs/tide/1/cells/01-all/seed-0), or that of a study
    with one run only. `module` is needed where a file cannot say what the model is: an object that Python
    code gave to the run, or a class whose file is no longer there.
    """
    file = model_file(Path(path))
    values, about = read_model(file)
    if module is None:
        module = _built(file, about)
    return filled(module, values, str(file))


def model_file(path: Path) -> Path:
    """The model file that a path stands for."""
    if path.is_file():
        return path
    newest = StudyFolder.newest(path).path
    found = sorted(newest.rglob("model.safetensors"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise OutputError(
            f"{path} must be the folder of a run that has ended. Got no model.safetensors in it. "
            "Name the folder of a run, such as runs/tide/1/cells/01-all/seed-0."
        )
    named = ", ".join(str(each.parent) for each in found[:SHOWN]) + ", ..." * (len(found) > SHOWN)
    raise OutputError(f"{path} must hold one model. Got {len(found)}: name one of {named}.")


def made_for(about: Mapping[str, Any]) -> MadeFor:
    """What the model of a file was built for."""
    told = about["made_for"]
    return MadeFor(tuple(told["shape"]), told["classes"], told["vocabulary"])


def _built(file: Path, about: Mapping[str, Any]) -> nn.Module:
    """A new module of the kind that the file names."""
    table = dict(about.get("model", {}))
    must = f"{file}: the kind of the model must be known"
    give = "Give the module: load_model(path, module=...)."
    if not table:
        raise ConfigError(
            f"{must}. Got a file of FedTide 0.2 or older, which does not say it. {give}"
        )
    if "kind" not in table or table.get("is_object"):
        name = table.get("class") or table["kind"].rpartition(":")[2]
        got = f"an object of {name}, which was given from Python"
        raise ConfigError(f"{must}. Got {got}. {give}")
    before = folder.set(_home(file, table["kind"], must, give))
    try:
        spec: ModelSpec = convert(ModelSpec, table, "train.model")
    finally:
        folder.reset(before)
    return spec.build(*made_for(about))


def _home(file: Path, kind: str, must: str, give: str) -> Path:
    """The folder from which `file.py:Class` is found: the working one, or one above the model's file."""
    place, _, _ = kind.rpartition(":")
    homes = [Path.cwd(), *file.resolve().parents]
    home = next((home for home in homes if not place or (home / place).is_file()), None)
    if home is None:
        raise ConfigError(
            f"{must}. Got {kind!r}, and there is no {place} here or in a folder above the file. "
            f"Work in the folder from which the study was run. Or g{give[1:]}"
        )
    return home
