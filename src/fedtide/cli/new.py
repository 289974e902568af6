"""The command `fedtide new`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtide.cli.console import console
from fedtide.core.errors import ConfigError

if TYPE_CHECKING:
    from fedtide.config.template import Answers

File = Annotated[Path, typer.Argument(help="The study file to write.")]
Data = Annotated[str, typer.Option("--data", help="A dataset: fedtide list datasets.")]
Population = Annotated[
    str, typer.Option("--population", help="fixed, alternating or poisson: do clients come and go?")
]
Clients = Annotated[int, typer.Option("--clients", help="Number of clients.")]
Rounds = Annotated[int, typer.Option("--rounds", help="Number of rounds.")]
Compare = Annotated[list[str], typer.Option("--compare", help="Algorithms, or starts, to compare.")]
Seeds = Annotated[int, typer.Option("--seeds", help="Number of seeds.")]


def new(
    study: File = Path("study.toml"),
    data: Data = "",
    population: Population = "",
    clients: Clients = 0,
    rounds: Rounds = 0,
    compare: Compare = [],  # noqa: B006 (typer copies it)
    seeds: Seeds = 0,
) -> None:
    """Write a commented study file from a few questions, or from options."""
    from fedtide.config.schema import study_schema
    from fedtide.config.template import SCHEMA, Answers, new_study
    from fedtide.record.files import write_text

    if study.suffix != ".toml":
        raise ConfigError(
            f"new must have the name of a study file. Got {study}. Write {study}.toml."
        )
    if study.exists():
        raise ConfigError(
            f"new must have a name that is free. Got {study}, which exists. Take another."
        )
    given = Answers(data, population, clients, rounds, compare, seeds)
    answers = _asked() if not any(given) and sys.stdin.isatty() else _filled(given)
    write_text(study, new_study(str(study), answers))
    schema = study.parent / SCHEMA
    if not schema.exists():
        write_text(schema, json.dumps(study_schema()) + "\n")
    for line in (
        f"Wrote {study}; {schema} lets editors complete and check it.",
        f"Next: fedtide check {study}, then fedtide run {study}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _filled(given: Answers) -> Answers:
    """The answers that options give; what they leave open has its default."""
    from fedtide.config.template import Answers

    return Answers(**{name: value for name, value in given._asdict().items() if value})


def _asked() -> Answers:
    """The answers of a person at a terminal."""
    from fedtide.config.template import POPULATIONS, Answers, usual
    from fedtide.data.datasets import DATASETS

    usually = Answers()
    data = typer.prompt(f"Which data? ({', '.join(DATASETS)})", usually.data)
    which = f"Do clients come and go? ({', '.join(POPULATIONS)})"
    population = typer.prompt(which, usually.population)
    clients = typer.prompt("How many clients?", usually.clients, type=int)
    rounds = typer.prompt("How many rounds?", usually.rounds, type=int)
    what = "What do you compare? (algorithms, or starts)"
    compare = typer.prompt(what, " ".join(usual(population))).replace(",", " ").split()
    seeds = typer.prompt("With how many seeds?", usually.seeds, type=int)
    return Answers(data, population, clients, rounds, compare, seeds)
