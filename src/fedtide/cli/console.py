"""What the commands print: results to standard output, remarks and errors to standard error."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

console = Console()


def remark(text: str) -> None:
    """Print a remark or an error of the command itself to standard error."""
    Console(stderr=True).print(f"fedtide: {text}", markup=False, highlight=False, soft_wrap=True)


def caution(sentences: Sequence[str]) -> None:
    """Print what a user must know when reading the results."""
    for sentence in sentences:
        console.print(f"Caution: {sentence}", markup=False, highlight=False, soft_wrap=True)
