"""Functions on trees: NamedTuples and dicts whose leaves are tensors (or arrays, between processes)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def tree_map(function: Callable[..., Tensor], tree: Any, *others: Any) -> Any:
    """Apply `function` to every leaf of `tree`, together with the leaves at the same place in `others`."""
    if isinstance(tree, Tensor | np.ndarray):
        return function(tree, *others)
    if isinstance(tree, Mapping):
        return {
            name: tree_map(function, leaf, *(o[name] for o in others))
            for name, leaf in tree.items()
        }
    return type(tree)(*(tree_map(function, *leaf) for leaf in zip(tree, *others, strict=True)))


def leaves(tree: Any) -> Iterator[Tensor]:
    """Every tensor of `tree`, in a fixed order."""
    if isinstance(tree, Tensor):
        yield tree
    else:
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(part)


def width(tree: Any) -> int:
    """How many numbers a row of a stacked tree has."""
    return sum(leaf.shape[1:].numel() for leaf in leaves(tree))


def size_bytes(tree: Any) -> int:
    """Bytes of all tensors of `tree`."""
    return sum(leaf.nbytes for leaf in leaves(tree))


def outline(tree: Any) -> tuple[Any, ...]:
    """The types, names, shapes and dtypes of a tree, without its values: equal for trees of one structure."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype
    parts = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return type(tree), *((name, outline(part)) for name, part in parts)


def rows(tree: Any, index: slice | Tensor | NDArray[np.int64] | int | tuple[Any, ...]) -> Any:
    """The rows at `index` of every stacked tensor."""
    return tree_map(lambda leaf: leaf[index], tree)


def stack(trees: Sequence[Any]) -> Any:
    """Stack trees of one structure along a new first axis."""
    return tree_map(lambda *parts: torch.stack(parts), *trees)


def joined(trees: Sequence[Any]) -> Any:
    """Concatenate stacked trees along their first axis."""
    return trees[0] if len(trees) == 1 else tree_map(lambda *parts: torch.cat(parts), *trees)


def repeated(tree: Any, count: int) -> Any:
    """Stack the same tree `count` times, without copying its tensors."""
    return tree_map(lambda leaf: leaf.expand(count, *leaf.shape), tree)
