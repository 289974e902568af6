"""A trained model in the files of other tools: a state dict of torch, ONNX, a Hugging Face folder."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedtide.core.errors import OutputError, needs
from fedtide.record.files import replacing, writing


def to_state_dict(module: nn.Module, path: Path) -> None:
    """Write the tensors of `module.state_dict()` as torch saves them."""
    with replacing(path) as temporary:
        torch.save(module.state_dict(), temporary)


def to_onnx(module: nn.Module, path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Write an ONNX file whose input `inputs` [batch, *shape] and output `outputs` have a free batch."""
    needs("fedtide export --format onnx", "onnx", "onnx", "onnxscript")
    example = torch.zeros(2, *shape, dtype=dtype)
    batch = ({0: torch.export.Dim.DYNAMIC},)
    try:
        with _quiet():
            program = torch.onnx.export(
                module,
                (example,),
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=batch,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise OutputError(
            f"{path}: torch must be able to write {type(module).__name__} as ONNX. Got: {reason} "
            "Export a state dict instead, with --format state-dict."
        ) from error
    assert program is not None
    with replacing(path) as temporary:
        program.save(str(temporary))


def to_huggingface(module: nn.Module, path: Path) -> None:
    """Write the folder that `from_pretrained(path)` reads."""
    save = getattr(module, "save_pretrained", None)
    if save is None:
        raise OutputError(
            f"{path}: only a Hugging Face model, one with save_pretrained, becomes a Hugging Face folder. "
            f"Got {type(module).__name__}. Export a state dict or ONNX instead."
        )
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        save(path)


def inputs_of(about: Mapping[str, Any]) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and type of one input, from what a model file says."""
    if "named" in about["inputs"]:
        got = f"the inputs {', '.join(about['inputs']['named'])}"
        raise OutputError(
            f"fedtide export --format onnx needs a model with one input without a name. Got {got}. "
            "Export a state dict, or a Hugging Face folder."
        )
    return tuple(about["made_for"]["shape"]), getattr(torch, about["inputs"]["dtype"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the remarks that torch's exporter prints, logs and warns of while it works."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
