"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(help="A study file (TOML).", show_default=False)]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. train.lr=0.1."),
]
Seeds = Annotated[list[int], typer.Option("--seed", help="Use these seeds instead of the study's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
