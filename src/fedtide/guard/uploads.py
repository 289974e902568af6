"""Uploads as rows of numbers, one per client, and the reasons why a server refuses one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedtide.core.trees import leaves, tree_map
from fedtide.guard.defences import lengths


def flat(stacked: Any) -> Tensor:
    """Stacked uploads as one matrix [U, D]: a row has all numbers that a client sends."""
    parts = [leaf.reshape(len(leaf), -1) for leaf in leaves(stacked)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def shaped(rows: Tensor, like: Any) -> Any:
    """The inverse of `flat`, for rows [..., D]; `like` are stacked uploads of the same structure."""
    sizes = [leaf[0].numel() for leaf in leaves(like)]
    parts = iter(torch.split(rows, sizes, -1))
    return tree_map(lambda leaf: next(parts).reshape(*rows.shape[:-1], *leaf.shape[1:]), like)


def refusals(stacked: Any, apart: Mapping[int, Any], max_norm: float) -> dict[int, str]:
    """The reasons why uploads are refused, by their place in the stack.

    `apart` has the uploads that arrived damaged, perhaps with another shape, by their place.
    """
    reasons = {place: _refusal(upload, stacked, max_norm) for place, upload in apart.items()}
    norms = lengths(flat(stacked))  # NaN or infinite if one number is
    for place in (~torch.isfinite(norms) | (norms > max_norm)).nonzero()[:, 0].tolist():
        if place not in apart:
            reasons[place] = _verdict(float(norms[place]), max_norm)
    return {place: reason for place, reason in sorted(reasons.items()) if reason}


def _refusal(upload: Any, stacked: Any, max_norm: float) -> str:
    wanted = [tuple(leaf.shape[1:]) for leaf in leaves(stacked)]
    got = [tuple(leaf.shape) for leaf in leaves(upload)]
    if got != wanted:
        return f"its shape must be {wanted}, got {got}"
    return _verdict(float(lengths(flat(tree_map(lambda leaf: leaf[None], upload)))), max_norm)


def _verdict(norm: float, max_norm: float) -> str:
    if not math.isfinite(norm):
        return "it must have finite numbers only"
    return f"its norm must be at most {max_norm:g}, got {norm:g}" if norm > max_norm else ""
