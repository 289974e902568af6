"""The command `fedtide`: one file for each group of commands.

A command imports what it needs when it runs, so that `fedtide --help` does not wait for PyTorch.
"""

from fedtide.cli.app import app, main

__all__ = ["app", "main"]
