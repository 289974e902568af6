"""Model files: safetensors with what is needed to use the model without the study that made it.

The entry `fedtide` of the metadata is JSON: study, setting and seed; the model as a study file writes it;
the shape of its inputs; which tensors are parameters, in the order of the flat vector; the last test scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from inspect import getsourcefile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedtide.core.errors import ConfigError, OutputError
from fedtide.core.layout import Layout
from fedtide.core.types import Dataset, Model
from fedtide.models import MODELS
from fedtide.models.base import MadeFor, ModelSpec, OwnModule
from fedtide.record.files import write_bytes
from fedtide.tasks.task import unsaved

FORMAT = 1
KEY = "fedtide"  # of the metadata; one key, because safetensors writes several in any order


def write_model(
    path: Path, model: Model, layout: Layout, about: Mapping[str, Any] | None = None
) -> None:
    """Write the model by parameter name, as safetensors; `about` says what it is."""
    tensors = {**layout.unpack(model.x), **model.buffers}
    parts = {"parameters": list(layout.names), "buffers": list(model.buffers)}
    told = {"format": FORMAT, "fedtide": version("fedtide"), "layout": parts, **(about or {})}
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(kept, {KEY: json.dumps(told, sort_keys=True)}))


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a model file by name, and what its metadata say (nothing in files before 0.3)."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get(KEY, "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise OutputError(
            f"{path} must be a model that FedTide wrote, in safetensors. Got: {error}. "
            "Name the folder of a run, or its model.safetensors."
        ) from error


def filled(module: nn.Module, values: Mapping[str, Tensor], where: str) -> nn.Module:
    """The module with these parameters and buffers, in evaluation mode.

    Frozen parameters may be missing, and buffers that are not part of a module's state.
    """
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    frozen = {name for name, part in module.named_parameters() if not part.requires_grad}
    frozen |= set(unsaved(module))
    strange = [name for name in values if name not in own]
    lacking = [name for name in own if name not in values and name not in frozen]
    if strange or lacking:
        got = f"{len(strange)} tensors that it does not have" if strange else "too few tensors"
        raise ConfigError(
            f"{where}: the model must be the one that was trained. Got {got} for "
            f"{type(module).__name__}, the first is {(strange + lacking)[0]!r}. Give the same module."
        )
    shared = [name for name in own if name in values]
    for name in shared:
        if own[name].shape != values[name].shape:
            raise ConfigError(
                f"{where}: {name!r} must have the shape {list(values[name].shape)}. Got "
                f"{list(own[name].shape)} in {type(module).__name__}. Give it the settings of the run."
            )
    with torch.no_grad():
        for name in shared:
            own[name].copy_(values[name])
    return module.eval()


def described_model(
    model: ModelSpec | nn.Module, made_for: MadeFor, sample: Dataset
) -> dict[str, Any]:
    """A model as a study file writes it, what it was made for, and which inputs it takes, as JSON.

    Pixels are numbers in [0, 1], less `mean` and divided by `std` of their channel where these are given.
    """
    first = sample.train
    ready, raw = first.between(0, 1)[0], first.tensor
    if not isinstance(ready, Tensor):
        dtypes = {name: _dtype(each) for name, each in ready.items()}
        return {"model": _table(model), "made_for": made_for._asdict(), "inputs": {"named": dtypes}}
    inputs: dict[str, Any] = {"dtype": _dtype(ready)}
    if raw is not None and raw.dtype == torch.uint8:
        inputs["pixels"] = "[0, 1]"
    if first.mean:
        inputs |= {"mean": list(first.mean), "std": list(first.std)}
    return {"model": _table(model), "made_for": made_for._asdict(), "inputs": inputs}


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _table(model: ModelSpec | nn.Module) -> dict[str, Any]:
    if isinstance(model, OwnModule):
        return {**_own(model.module), **_plain(model.settings)}
    if isinstance(model, nn.Module):
        return _own(type(model)) | {"is_object": True}
    names = (name for name, kind in MODELS.items() if kind is type(model))
    kind = next(names, None)
    return {**({"kind": kind} if kind else _own(type(model))), **_plain(model)}


def _own(kind: Any) -> dict[str, Any]:
    """A user's own class or function as `file.py:Class`, the file from the folder in which the study runs."""
    try:
        file = Path(getsourcefile(kind) or "").resolve()
    except (TypeError, OSError):  # defined in a notebook or an interpreter
        return {"class": kind.__name__}
    home = Path.cwd()
    place = file.relative_to(home).as_posix() if file.is_relative_to(home) else file.name
    return {"kind": f"{place}:{kind.__qualname__}"}


def _plain(value: Any) -> Any:
    """Settings as JSON, under the names that study files use."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
