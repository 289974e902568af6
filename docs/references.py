"""For MkDocs: the references of commands and kinds, written from the commands and kinds themselves."""

import re
from collections.abc import Callable, Iterator
from inspect import getdoc
from typing import Any

import click
from typer.main import get_command

from fedtide import config
from fedtide.cli import app
from fedtide.core.kinds import Kinds
from fedtide.run.kinds import ROOMS

SEVERAL = re.compile(r"^::: (\S+) \[(.+)\]$", re.M)


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Put a reference where a page asks for it."""
    for place, sections in REFERENCES.items():
        if place in markdown:
            markdown = markdown.replace(place, "\n\n".join(sections()))
    return SEVERAL.sub(_each, markdown)


def _each(several: re.Match[str]) -> str:
    """`::: module [a, b]` for mkdocstrings, which takes one name at a time."""
    return "\n\n".join(f"::: {several[1]}.{name}" for name in several[2].split(", "))


def every_command() -> Iterator[str]:
    """A section for each command."""
    for name, command in _commands("fedtide", get_command(app)):
        context = click.Context(command)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        rows = [_parameter(parameter, context) for parameter in command.params]
        table = _table(("argument or option", "default", "meaning"), rows)
        yield f"### {name}\n\n{command.help}\n\n```text\n{usage}\n```\n\n{table}"


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name; a group stands for the commands in it."""
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            yield from _commands(f"{name} {word}", inner)
    else:
        yield name, command


def _parameter(parameter: click.Parameter, context: click.Context) -> tuple[str, str, str]:
    value, meaning = parameter.make_metavar(context), getattr(parameter, "help", "")
    if not isinstance(parameter, click.Option):
        return f"`{value}`", "", meaning
    names = [
        f"`{name} {'' if parameter.is_flag else value}".strip() + "`" for name in parameter.opts
    ]
    is_empty = parameter.default in (None, []) or parameter.is_flag
    repeated = " May be repeated." if parameter.multiple else ""
    return ", ".join(names), "" if is_empty else f"`{parameter.default}`", meaning + repeated


def every_kind() -> Iterator[str]:
    """A section for each room: its kinds, their classes and settings."""
    for room, kinds in ROOMS.items():
        title = room.replace("-", " ").capitalize()
        rows = [_kind(name, kind) for name, kind in kinds.built_in.items()]
        table = _table(("kind", "class", "meaning", "settings and defaults"), rows)
        yield f"## {title}\n\nEntry point `fedtide.{room}`.{_usual(kinds)}\n\n{table}"


def _usual(kinds: Kinds) -> str:
    return f" Without a `kind`, `{kinds.usual}`." if kinds.usual else ""


def _kind(name: str, kind: type) -> tuple[str, str, str, str]:
    meaning = (getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    settings = ", ".join(f"`{key} = {value}`" for key, value in config.settings(kind).items())
    return f"`{name}`", f"`{kind.__name__}`", meaning, settings


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )


REFERENCES: dict[str, Callable[[], Iterator[str]]] = {
    "<!-- every command -->": every_command,
    "<!-- every kind -->": every_kind,
}
