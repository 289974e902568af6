"""A search for settings in the terminal: a line for each trial, then what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.searched import Searched
from fedtide.record.folder import word


def chosen_table(found: Searched) -> Group:
    """One row for each chosen setting, in two lines; then how each setting's budget was spent."""
    scale = found.scale
    near = "a point" if scale.is_accuracy else "one percent"
    head = "score %" if scale.is_accuracy else scale.name
    table = Table(
        title="Chosen values",
        title_justify="left",
        caption=f"Nearly as good: values up to {near} below the best, and how many finished trials had them.",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for column in ("method", "setting", "chosen", "nearly as good", head):
        table.add_column(column, overflow="fold", justify="right" if column == head else "left")
    for method in found.methods:
        score = "" if method.score is None else _shown(method.score, scale)
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


def _shown(score: float, scale: Scale) -> str:
    return f"{100 * score:.1f}" if scale.is_accuracy else scale.text(scale.sign * score)


def trial_line(name: str, trial: Mapping[str, Any], scale: Scale = ACCURACY) -> str:
    """For example: FedProx, trial 7: 83.1 % with train.lr = 0.03."""
    values = ", ".join(f"{key} = {word(value)}" for key, value in trial["values"].items())
    score = trial["score"]
    unit = " %" if scale.is_accuracy else ""
    end = trial["ended"] if score is None else _shown(score, scale) + unit
    return f"{name}, trial {trial['number'] + 1}: {end}" + (f" with {values}" if values else "")
