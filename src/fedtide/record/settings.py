"""Every setting of an experiment as JSON, defaults included, and the differences between two of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtide.data.lazy import LazyExamples

HOME = "fedtide."


def plain(value: Any, leave: frozenset[str] = frozenset(), where: str = "") -> Any:
    """A setting as JSON; tensors, functions and other Python objects by their names or checksums.

    `leave` names settings to leave out, such as engine.workers, because they do not change results.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, LazyExamples):  # whose inputs are not in memory
        some = [*value.checked(), value.targets]
        return {"is": _origin(type(value)), "some": [_word(each) for each in some]}
    if is_dataclass(value) and not isinstance(value, type):
        names = ((f.name, f"{where}.{f.name}".lstrip(".")) for f in fields(value))
        kept = {n: plain(getattr(value, n), leave, at) for n, at in names if at not in leave}
        return {"is": _origin(type(value)), **kept}
    if isinstance(value, Mapping):
        return {str(key): plain(item, leave, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item, leave, where) for item in value]
    return _word(value)


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """The differences between the settings of two studies, one line each."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{where}[{number}]")
    elif old != new:
        yield f"{where} was {old!r}, is {new!r}"


def _word(value: Any) -> str:
    """A name for what JSON cannot hold, the same in every process."""
    if isinstance(value, nn.Module):
        weights = ", ".join(f"{k} {_word(v)}" for k, v in value.state_dict().items())
        return f"{_origin(type(value))} ({weights})"
    if isinstance(value, Tensor):  # by its bytes: numpy does not have every type
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)} {blake2b(raw.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        return f"{value.dtype}{list(value.shape)} {blake2b(content, digest_size=8).hexdigest()}"
    return _origin(value if hasattr(value, "__qualname__") else type(value))


def _origin(thing: Any) -> str:
    """The name of a class or function; if it is not FedTide's, with a checksum of its file."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    if name.startswith(HOME):
        return name.removeprefix(HOME)
    try:
        source = Path(inspect.getfile(thing)).read_bytes()
    except (OSError, TypeError):
        return name
    return f"{name} {blake2b(source, digest_size=8).hexdigest()}"
