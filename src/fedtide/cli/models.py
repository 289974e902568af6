"""The command that takes a trained model: `fedtide export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedtide.cli.console import console

ENDINGS = {"state-dict": ".pt", "onnx": ".onnx", "huggingface": ""}

Run = Annotated[
    Path,
    typer.Argument(help="The folder of a run, e.g. runs/tide/1/cells/01-all/seed-0, or its model."),
]
ModelFormat = Annotated[
    Literal["state-dict", "onnx", "huggingface"], typer.Option("--format", help="What to write.")
]
Target = Annotated[
    Path | None,
    typer.Option("--out", help="File or folder to write; else `model` beside the model's file."),
]


def export(run: Run, format_: ModelFormat = "state-dict", out: Target = None) -> None:
    """Write a trained model for other tools: a state dict of torch, ONNX, or a Hugging Face folder."""
    from fedtide.config.model import load_model, model_file
    from fedtide.record import export as to
    from fedtide.record.model import read_model

    file = model_file(run)
    path = out or file.with_name(f"model{ENDINGS[format_]}")
    module = load_model(file)
    if format_ == "onnx":
        to.to_onnx(module, path, *to.inputs_of(read_model(file)[1]))
    else:
        {"state-dict": to.to_state_dict, "huggingface": to.to_huggingface}[format_](module, path)
    console.print(f"Model: {path}", markup=False, highlight=False, soft_wrap=True)
