"""The commands `fedtide deploy init`, `keys`, `up` and `client`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from fedtide.core.errors import ConfigError, needs

app = typer.Typer(help="Run a study on real clients, over Flower.", no_args_is_help=True)
console = Console(highlight=False)

Clients = Annotated[int, typer.Option(help="How many clients.", min=1)]


@app.callback()
def root() -> None:
    """Run a study on real clients, over Flower."""
    needs("fedtide deploy", "flower", "flwr")


@app.command()
def init(
    study: Annotated[Path, typer.Argument(help="A study file (TOML).", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="A new folder for the app.", show_default=False)],
) -> None:
    """Write a Flower app for a study: ready to run, with a hook for the clients' own data."""
    from fedtide.deploy.template import init as write

    data = write(study, folder)
    console.print(f"Wrote {folder}. Try it: fedtide deploy up {folder} --clients 3", soft_wrap=True)
    console.print(f"Your clients' data: {data}", soft_wrap=True)


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="A new folder for the keys.", show_default=False)],
    clients: Clients = 3,
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host",
            help="Another name of the server beside localhost and 127.0.0.1; may be repeated.",
        ),
    ] = [],  # noqa: B006 (typer copies it)
) -> None:
    """Make a certificate for the server and a key pair for every client."""
    from fedtide.deploy.keys import generate

    made = generate(folder, clients, hosts)
    console.print(f"The server keeps {made.certificate} and {made.key}.", soft_wrap=True)
    console.print(
        f"Each client gets {made.authority} and one key, {made.of_client(0)} ...", soft_wrap=True
    )


@app.command()
def client(
    server: Annotated[
        str, typer.Option(help="Where the server is reached, such as the local end of a tunnel.")
    ] = "127.0.0.1:8000",
    numbers: Annotated[
        list[int],
        typer.Option("--number", help="The number of this client; repeat it for several.", min=0),
    ] = [0],  # noqa: B006 (typer copies it)
    keys: Annotated[
        Path | None,
        typer.Option(help="The folder with ca.crt and client-NUMBER.key.", show_default=False),
    ] = None,
    settings: Annotated[
        str, typer.Option("--settings", help="For of_client in data.py: 'file=\"/srv/a.csv\"'.")
    ] = "",
    share_errors: Annotated[
        bool, typer.Option("--share-errors", help="Send the text of errors to the server.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start a process for every message, as Flower does.")
    ] = False,
    logs: Annotated[
        Path | None,
        typer.Option(help="A folder for logs instead of the terminal.", show_default=False),
    ] = None,
) -> None:
    """Run a client on this machine until it is stopped; it stays loaded between messages."""
    from fedtide.deploy.nodes import ENVIRONMENT, run_cold, run_warm, starts, why_cold

    os.environ.update(ENVIRONMENT)
    from fedtide.deploy.keys import Keys

    found = starts(server, numbers, Keys(keys) if keys else None, settings, share_errors, logs)
    why = "" if cold else why_cold()
    if why:
        console.print(f"Every message will start a process: {why}.", soft_wrap=True)
    raise typer.Exit(run_cold(found) if cold or why else run_warm(found))


@app.command()
def up(
    folder: Annotated[Path, typer.Argument(help="A folder that `deploy init` wrote.")] = Path(),
    clients: Clients = 3,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("runs"),
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS and keys made for this run.")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the models of all sessions; a later run goes on from them.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a server and clients on this machine, run the study, and stop everything again."""
    from fedtide.deploy.keys import generate
    from fedtide.deploy.up import Deployment

    if not (folder / "pyproject.toml").is_file():
        raise ConfigError(
            f"deploy up: the folder must hold an app. Got {str(folder)!r} without a pyproject.toml. "
            "Write one: fedtide deploy init study.toml my-app"
        )
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    with TemporaryDirectory(prefix="fedtide-") as home:
        made = generate(Path(home) / "keys", clients) if secure else None
        with Deployment(folder, Path(home) / "flower", made) as place:
            place.start_server()
            for number in range(clients):
                if made:
                    place.register(number)
                place.start_client(number)
            console.print(f"{clients} clients are starting; Ctrl-C stops everything.")
            for line in place.run(out, clients, archive):
                console.print(line, markup=False, soft_wrap=True)
