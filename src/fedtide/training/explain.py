"""Errors in the code of authors: they come out with method, stage, client, round, file and line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from fedtide.algorithms.base import Algorithm
from fedtide.core.errors import AuthorError, FedTideError, is_out_of_memory

TRAINING = "local training"  # the stage in which clients run
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
    """Turn an exception raised inside an author's code into an `AuthorError`.

    Other exceptions, and those that FedTide raises on purpose, pass unchanged.
    """
    try:
        yield
    except FedTideError:
        raise
    except Exception as error:
        found = _find_method(error)
        if found is None or is_out_of_memory(error):
            raise
        client = f", client {error.client}" if hasattr(error, "client") else ""
        raise AuthorError(
            f"round {t}{client}, {stage}: {found.name} must run without an error. Got {_said(error)} "
            f"({found.file}, line {found.line}). {_way_out(error, stage)}"
        ) from error


def reason(error: Exception) -> str:
    """What went wrong, in a few words: with method, file and line where an author's code raised the error."""
    found = _find_method(error)
    place = f"{found.name}: {{}} ({found.file}, line {found.line})" if found else "{}"
    return place.format(_said(error))


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
    algorithm: Algorithm[Any, Any, Any, Any], value: Any, examples: int
) -> Tensor | float:
    """Return a penalty if it is one value per example or a scalar."""
    is_number = isinstance(value, int | float)
    if not is_number and (not isinstance(value, Tensor) or value.shape not in ((), (examples,))):
        raise AuthorError(
            f"{type(algorithm).__name__}.penalty must return one value per example, shape ({examples},), "
            f"or a scalar. Got {_form(value)}. Average or sum over the other dimensions."
        )
    return cast("Tensor | float", value)


def check_direction(algorithm: Algorithm[Any, Any, Any, Any], value: Any, grad: Tensor) -> Tensor:
    """Return a direction if it has the shape of the gradient."""
    if not isinstance(value, Tensor) or value.shape != grad.shape:
        raise AuthorError(
            f"{type(algorithm).__name__}.direction must return a vector like `grad`, shape "
            f"{tuple(grad.shape)}. Got {_form(value)}. Return the gradient, or a change of it."
        )
    return value


def check_report(algorithm: Algorithm[Any, Any, Any, Any], value: Any) -> tuple[Any, Any]:
    """Return what `report` returned if it is an upload and a memory, both NamedTuples."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and not hasattr(value, "_fields")
    if not is_pair or not all(hasattr(part, "_fields") for part in value):
        got = f"({', '.join(map(_form, value))})" if is_pair else _form(value)
        raise AuthorError(
            f"{type(algorithm).__name__}.report must return two NamedTuples of tensors, the upload and what "
            f"the client remembers. Got {got}. Return `Upload(...), mine`; Nothing() is an empty memory."
        )
    return value[0], value[1]


def check_memory(algorithm: Algorithm[Any, Any, Any, Any], before: Any, after: Any) -> None:
    """Refuse a client's memory whose fields or shapes have changed: it is a row of a table."""
    if _forms(before) != _forms(after):
        raise AuthorError(
            f"{type(algorithm).__name__}.report must return a memory like the one that `memory` returns, "
            f"with the same fields and shapes. Got {type(after).__name__}{list(after._fields)} after "
            f"{type(before).__name__}{list(before._fields)}. Return as second value what the client shall "
            "remember; Nothing() where `memory` is not defined."
        )


class _Place(NamedTuple):
    """The author's method or function in which an error arose, and the line that it had reached."""

    name: str
    file: str
    line: int


def _find_method(error: BaseException) -> _Place | None:
    """The innermost method of an author's class, or function that such a class holds, in a traceback."""
    frames = list(traceback.walk_tb(error.__traceback__))
    callers = [None, *(frame for frame, _ in frames)]
    own = [place for place, (frame, _) in enumerate(frames) if _is_own(frame, callers[place])]
    if not own:
        return None
    frame = frames[own[-1]][0]
    file = frame.f_code.co_filename
    line = [at for inner, at in frames[own[-1] :] if inner.f_code.co_filename == file][-1]
    owner = [type(frame.f_locals["self"]).__name__] if "self" in frame.f_locals else []
    return _Place(".".join([*owner, frame.f_code.co_name]), Path(file).name, line)


def _is_own(frame: FrameType, caller: FrameType | None) -> bool:
    """Does this frame run code that an author of an algorithm, a model or another kind wrote?

    Methods of the built-in algorithms count too: what an author's method returned may break them.
    """
    module, self = frame.f_globals.get("__name__", ""), frame.f_locals.get("self")
    if isinstance(self, Algorithm):
        return module not in _CONTRACT
    if module.split(".")[0] in ("fedtide", "torch"):
        return False
    is_kind = any(base.__module__.startswith("fedtide.") for base in type(self).__mro__)
    return is_kind or isinstance(self, nn.Module) or _holds(caller, frame.f_code)


def _holds(caller: FrameType | None, code: CodeType) -> bool:
    """Is this function a field of the object whose method called it, as a function given as a probe is?"""
    fields = getattr(caller and caller.f_locals.get("self"), "__dict__", {})
    return any(getattr(value, "__code__", None) is code for value in fields.values())


def _said(error: Exception) -> str:
    """The error's name and the first line of its message."""
    if _branches(error):
        return "a branch on the value of a tensor, which vmap cannot follow"
    lines = str(error).strip().splitlines()
    return type(error).__name__ + (f": {lines[0].rstrip('.')}" if lines else "")


def _branches(error: Exception) -> bool:
    return "data-dependent control flow" in str(error)


def _way_out(error: Exception, stage: str) -> str:
    if _branches(error):
        return "Use torch.where, or set engine.kind = 'loop'."
    if stage == TRAINING:
        return "Mend it there; engine.kind = 'loop' with engine.workers = 1 runs client by client."
    return "Mend it there."


def _form(value: Any) -> str:
    """A value's type, and its shape if it is a tensor."""
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _forms(tree: Any) -> Any:
    """The types and shapes of a tree of tensors."""
    return tree.shape if isinstance(tree, Tensor) else (type(tree), *map(_forms, tree))
