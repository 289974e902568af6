"""A search for settings in the terminal: a line for each trial, then what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedtide.measure.searched import Searched
from fedtide.record.folder import word


def chosen_table(found: Searched) -> Group:
    """One row for each chosen setting, in two lines; then how each setting's budget was spent."""
    table = Table(
        title="Chosen values",
        title_justify="left",
        caption="Nearly as good: values up to a point below the best, and how many finished trials had them.",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for head in ("method", "setting", "chosen", "nearly as good", "score %"):
        table.add_column(head, overflow="fold", justify="right" if head == "score %" else "left")
    for method in found.methods:
        score = "" if method.score is None else f"{100 * method.score:.1f}"
        rows = [(c.key, word(c.value), c.flatness) for c in method.choices] or [("none", "", "")]
        for number, row in enumerate(rows):
            first = (method.name, score) if number == 0 else ("", "")
            table.add_row(
                *map(Text, (first[0], *row, first[1])), end_section=number == len(rows) - 1
            )
    spent = Table(title="How the budget was spent", title_justify="left", box=SIMPLE_HEAD)
    spent.add_column("method", overflow="fold")
    for head in ("trials", "finished", "pruned", "diverged", "client\nupdates"):
        spent.add_column(head, justify="right", no_wrap=True)
    for method in found.methods:
        counts = [str(method.count(ended)) for ended in ("finished", "pruned", "diverged")]
        numbers = (str(len(method.trials)), *counts, f"{method.updates:,}")
        spent.add_row(Text(method.name), *numbers)
    return Group(table, spent)


def trial_line(name: str, trial: Mapping[str, Any]) -> str:
    """For example: FedProx, trial 7: 83.1 % with train.lr = 0.03."""
    values = ", ".join(f"{key} = {word(value)}" for key, value in trial["values"].items())
    score = trial["score"]
    end = trial["ended"] if score is None else f"{100 * score:.1f} %"
    return f"{name}, trial {trial['number'] + 1}: {end}" + (f" with {values}" if values else "")
