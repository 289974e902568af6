"""Errors in an algorithm's own methods: they come out with method, stage, client, round, file and line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm
from fedtide.core.errors import AuthorError, FedTideError

_CONTRACT = {base.__module__ for base in (Algorithm,)} | {"fedtide.algorithms.wrapper"}


@contextmanager
def of_client(client: int) -> Iterator[None]:
    """Note with an exception which client it belongs to."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "client"):
            error.client = client  # type: ignore[attr-defined]
        raise


@contextmanager
def explained(stage: str, t: int) -> Iterator[None]:
    """Turn an exception raised inside a method of an algorithm into an `AuthorError`.

    Other exceptions, and those that FedTide raises on purpose, pass unchanged.
    """
    try:
        yield
    except (FedTideError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        found = _method(error)
        if found is None:
            raise
        name, file, line = found
        client = f", client {error.client}" if hasattr(error, "client") else ""
        said = str(error).strip().splitlines()
        got = f"{type(error).__name__}" + (f": {said[0].rstrip('.')}" if said else "")
        raise AuthorError(
            f"round {t}{client}, {stage}: {name} must run without an error. Got {got} ({file}, line "
            f"{line}). {_way_out(got)}"
        ) from error


def check_state(algorithm: Algorithm[Any, Any, Any, Any], method: str, state: Any) -> Any:
    """Return `state`, the result of `init` or `broadcast`, if it is a NamedTuple with a model in field x."""
    name = f"{type(algorithm).__name__}.{method}"
    x = getattr(state, "x", None)
    if not isinstance(state, tuple) or not hasattr(state, "_fields") or not isinstance(x, Tensor):
        got = f"{type(state).__name__} with fields {list(getattr(state, '_fields', ()))}"
        raise AuthorError(
            f"{name} must return a NamedTuple of tensors with the model in a field x. Got {got}. "
            "Give it a field `x: Vector`."
        )
    return state


def check_penalty(
    algorithm: Algorithm[Any, Any, Any, Any], value: Tensor | float, examples: int
) -> Tensor | float:
    """Return a penalty if it is one value per example or a scalar."""
    if isinstance(value, Tensor) and value.shape not in ((), (examples,)):
        raise AuthorError(
            f"{type(algorithm).__name__}.penalty must return one value per example, shape ({examples},), "
            f"or a scalar. Got shape {tuple(value.shape)}. Average or sum over the other dimensions."
        )
    return value


def _method(error: BaseException) -> tuple[str, str, int] | None:
    """Class and name of the innermost method of an algorithm in a traceback, and the line it had reached."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [place for place, (frame, _) in enumerate(frames) if _is_own(frame)]
    if not own:
        return None
    frame = frames[own[-1]][0]
    file = frame.f_code.co_filename
    line = [at for inner, at in frames[own[-1] :] if inner.f_code.co_filename == file][-1]
    name = f"{type(frame.f_locals['self']).__name__}.{frame.f_code.co_name}"
    return name, Path(file).name, line


def _is_own(frame: FrameType) -> bool:
    """Does this frame run a method that an algorithm's author wrote?"""
    written = frame.f_globals.get("__name__") not in _CONTRACT
    return written and isinstance(frame.f_locals.get("self"), Algorithm)


def _way_out(got: str) -> str:
    if "vmap" in got or "functorch" in got:
        return (
            "Methods that run for clients must not branch on values: use torch.where, or set "
            "engine.kind = 'loop'."
        )
    return "Mend the method; engine.kind = 'loop' with engine.workers = 1 runs client by client."
