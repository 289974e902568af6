"""Convert the values of a checkpoint to JSON and tensors, and back.

A value is a tree of NamedTuples, tuples, lists and dicts; its leaves are tensors, numpy arrays, numbers,
texts and None. A NamedTuple is written with its name. Reading looks that name up among the classes that the
caller declares, so a file can name a class but not add one: nothing is imported or unpickled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.errors import OutputError

Node = Any  # JSON: a number, a text, true, false, null, or [type, ...]
Kinds = Mapping[str, type[Any]]  # NamedTuples by name
Put = Callable[[Tensor], Node]  # stores a tensor and returns its address
Get = Callable[[Node], Tensor]  # returns the tensor at an address

PLAIN = (bool, int, str, type(None))


def declared(*owners: object) -> Kinds:
    """The NamedTuples that the modules of these objects define or import, by name.

    The state of an algorithm, an optimiser or a process consists of classes of its module, so passing the
    object declares them; a class declares those of its module, too.
    """
    modules = {name for owner in owners for name in _modules(owner)} & sys.modules.keys()
    found = (kind for name in modules for kind in vars(sys.modules[name]).values())
    return {_name(kind): kind for kind in found if _is_named(kind)}


def pack(value: Any, kinds: Kinds, put: Put) -> Node:
    """The value as JSON; `put` stores its tensors and arrays."""

    def packed(value: Any) -> Node:
        name = _name(type(value))
        if isinstance(value, Tensor):
            return ["tensor", put(value)]
        if isinstance(value, np.ndarray | np.generic):
            sort = "array" if isinstance(value, np.ndarray) else "scalar"
            return [sort, put(_tensor(value))]
        if type(value) in PLAIN or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is float:
            return ["float", str(value)]
        if isinstance(value, Mapping):
            return ["dict", *([packed(key), packed(item)] for key, item in value.items())]
        if type(value) in (tuple, list):
            return [type(value).__name__, *map(packed, value)]
        if kinds.get(name) is type(value):
            return ["named", name, *([f, packed(getattr(value, f))] for f in value._fields)]
        raise OutputError(
            f"A checkpoint must hold tensors, arrays, numbers, texts, and NamedTuples of the module that "
            f"uses them. Got {name}. Define it as a NamedTuple beside the algorithm or process."
        )

    return packed(value)


def unpack(node: Node, kinds: Kinds, get: Get) -> Any:
    """The value that `pack` wrote; a ValueError, KeyError or TypeError if it did not write this."""
    if not isinstance(node, list):
        return node
    sort, *rest = node
    if sort in ("tensor", "array", "scalar"):
        tensor = get(rest[0])
        if sort == "tensor":
            return tensor
        array = tensor.cpu().numpy()
        return array if sort == "array" else array[()]
    if sort == "float":
        return float(rest[0])
    if sort == "named":
        kind = kinds[rest[0]]
        members = {name: unpack(part, kinds, get) for name, part in rest[1:]}
        if tuple(members) != kind._fields:
            raise ValueError(f"{rest[0]} has other fields: {', '.join(members)}")
        return kind(**members)
    if sort == "dict":
        return {unpack(key, kinds, get): unpack(part, kinds, get) for key, part in rest}
    return {"tuple": tuple, "list": list}[sort](unpack(part, kinds, get) for part in rest)


def _modules(owner: object) -> Iterator[str]:
    """The modules of a class and its bases; for an object, also those of its settings."""
    if isinstance(owner, type):
        yield from (base.__module__ for base in owner.__mro__)
    elif isinstance(owner, tuple):
        yield from (name for part in owner for name in _modules(part))
    elif is_dataclass(owner):
        yield from _modules(type(owner))
        for f in fields(owner):
            yield from _modules(getattr(owner, f.name))


def _is_named(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _tensor(value: np.ndarray[Any, Any] | np.generic) -> Tensor:
    try:
        return torch.from_numpy(np.array(value))  # a copy: the original may be read-only
    except TypeError as error:
        raise OutputError(
            f"A checkpoint must hold arrays of numbers. Got {value.dtype}. Keep texts in a tuple."
        ) from error
