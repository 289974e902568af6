"""Trees of tensors as Flower records: every tensor under the names of its fields, `down/x`, `up/dc`.

Tensors without dimensions are numbers in the description of the tree: an array of its own would cost several
requests on its way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedtide.core.errors import EngineError

# What is in a record, as JSON: null for a tensor, {"dtype", "number"} for one without dimensions, {"fields"}
# for a mapping, also {"type"} for a NamedTuple.
Contents = Any
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
}
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError)
Setting = int | float | str


def packed(tree: Any, **settings: Setting) -> RecordDict:
    """A tree and a few settings as the content of a message."""
    return letters(tree, {0: {}}, **settings)[0]


def letters(
    tree: Any, each: Mapping[int, Mapping[str, Setting]], **settings: Setting
) -> dict[int, RecordDict]:
    """The same tree for several receivers, with settings of their own; the tree is packed once."""
    arrays = ArrayRecord({path: _array(leaf) for path, leaf in _paths(tree, "")})
    about = {"contents": json.dumps(_contents(tree)), **settings}
    return {
        receiver: RecordDict({"arrays": arrays, "config": ConfigRecord({**about, **own})})
        for receiver, own in each.items()
    }


def unpacked(record: RecordDict, device: torch.device | None = None) -> tuple[Any, ConfigRecord]:
    """The tree and the settings again."""
    try:
        arrays, config = record.array_records["arrays"], record.config_records["config"]
        contents = json.loads(str(config["contents"]))
        # Cloned: memory of torch is aligned, that of numpy may not be, and sums depend on it.
        tensors = {path: torch.from_numpy(array.numpy()).clone() for path, array in arrays.items()}
        tensors = {path: leaf.to(device) for path, leaf in tensors.items()}
        tree = _tree(contents, tensors, "", device)
    except WRONG as error:
        raise EngineError(
            f"A message must hold what its `contents` say. Got {error!r}. "
            "Deploy the same version of FedTide and of the app on every machine."
        ) from error
    return tree, config


def _array(leaf: Tensor) -> Array:
    return Array(leaf.detach().cpu().contiguous().numpy())


def _parts(tree: Any) -> Iterator[tuple[str, Any]]:
    """The named parts of a mapping or a NamedTuple."""
    return iter(tree.items() if isinstance(tree, Mapping) else tree._asdict().items())


def _is_number(leaf: Tensor) -> bool:
    """Can JSON hold it? Not numbers that are infinite or none: these travel as arrays, to be refused."""
    known = str(leaf.dtype).removeprefix("torch.") in DTYPES
    return leaf.dim() == 0 and known and bool(torch.isfinite(leaf))


def _paths(tree: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        if not _is_number(tree):
            yield path, tree
    else:
        for name, part in _parts(tree):
            yield from _paths(part, f"{path}/{name}" if path else name)


def _contents(tree: Any) -> Contents:
    if isinstance(tree, Tensor):
        if _is_number(tree):
            return {"dtype": str(tree.dtype).removeprefix("torch."), "number": tree.item()}
        return None
    fields = {name: _contents(part) for name, part in _parts(tree)}
    if isinstance(tree, Mapping):
        return {"fields": fields}
    return {"type": f"{type(tree).__module__}:{type(tree).__qualname__}", "fields": fields}


def _tree(
    contents: Contents, tensors: Mapping[str, Tensor], path: str, device: torch.device | None
) -> Any:
    if contents is None:
        return tensors[path]
    if "number" in contents:
        number = contents["number"]
        if not isinstance(number, int | float):
            raise ValueError(f"{path} must be a number. Got {number!r:.80}")
        return torch.tensor(number, dtype=DTYPES[contents["dtype"]], device=device)
    parts = {
        name: _tree(inner, tensors, f"{path}/{name}" if path else name, device)
        for name, inner in contents["fields"].items()
    }
    return _named_tuple(contents["type"])(**parts) if "type" in contents else parts


def _named_tuple(name: str) -> type:
    """A NamedTuple of a module that is already loaded: a message never imports anything."""
    module, _, member = name.partition(":")
    found = getattr(sys.modules.get(module), member, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise ValueError(f"{name} is not a NamedTuple of this app")
    return found
