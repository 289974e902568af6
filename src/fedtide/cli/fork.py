"""The command `fedtide fork`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedtide.cli.console import console
from fedtide.cli.options import Changes, Json, Seeds, StudyFile

Rounds = Annotated[
    int, typer.Option("--rounds", help="How many rounds of each start are played.", min=1)
]


def fork(
    study: StudyFile,
    rounds: Rounds = 5,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("runs"),
    changes: Changes = [],  # noqa: B006 (typer copies it)
    seeds: Seeds = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Play every start of a study at every start of the first one's run: which would have been best?"""
    from rich.progress import Progress

    from fedtide import config
    from fedtide.run.regret import fork_study, rounds_to_follow
    from fedtide.show.regret import regret_table, write_regret

    plan = config.load(study, changes, seeds)
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("rounds of the first start", total=rounds_to_follow(plan))
        found = fork_study(plan, rounds, lambda: bar.advance(task))
    folder = write_regret(found, out / plan.name)
    if as_json:
        typer.echo((folder / "regret.json").read_text(encoding="utf-8"), nl=False)
        return
    for table in regret_table(found):
        console.print(table)
    console.print(
        "Regret: how many points the mean accuracy of the next "
        f"{rounds} rounds is below that of the best start at the same change. "
        "Best at: ties count for all."
    )
    console.print(f"Chart: {folder / 'regret.html'}", soft_wrap=True)
    console.print(f"Numbers: {folder / 'regret.json'}", soft_wrap=True)
