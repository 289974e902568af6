"""For MkDocs: the reference of the command line, written from the commands themselves."""

from collections.abc import Iterator
from typing import Any

import click
from typer.main import get_command

from fedtide.cli import app

PLACE = "<!-- every command -->"


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Put the description of every command where a page asks for it."""
    if PLACE not in markdown:
        return markdown
    commands = list(_commands("fedtide", get_command(app)))
    return markdown.replace(PLACE, "\n\n".join(_section(*command) for command in commands))


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name; a group stands for the commands in it."""
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            yield from _commands(f"{name} {word}", inner)
    else:
        yield name, command


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [_row(parameter, context) for parameter in command.params]
    table = ["| argument or option | default | meaning |", "|---|---|---|", *rows]
    return "\n".join(
        [f"### {name}", "", command.help or "", "", "```text", usage, "```", "", *table]
    )


def _row(parameter: click.Parameter, context: click.Context) -> str:
    value = parameter.make_metavar(context)
    names = [value]
    if isinstance(parameter, click.Option):
        names = [f"{name} {'' if parameter.is_flag else value}".strip() for name in parameter.opts]
    default = "" if _is_empty(parameter.default) else f"`{parameter.default}`"
    help_text = getattr(parameter, "help", "")
    repeated = (
        " May be repeated." if isinstance(parameter, click.Option) and parameter.multiple else ""
    )
    cells = [", ".join(f"`{name}`" for name in names), default, help_text + repeated]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _is_empty(default: Any) -> bool:
    return default is None or default is False or default == []
