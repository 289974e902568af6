"""The commands `fedtide deploy init`, `keys`, `up` and `client`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedtide.core.errors import ConfigError, needs

if TYPE_CHECKING:
    from fedtide.deploy.keys import Keys
    from fedtide.deploy.up import Deployment

app = typer.Typer(help="Run a study on real clients, over Flower.", no_args_is_help=True)
console = Console(highlight=False)

Settings = Annotated[
    str,
    typer.Option(
        help="For of_client in data.py, as 'file=\"/srv/a.csv\"'; {number} is the client's number."
    ),
]
Clients = Annotated[int, typer.Option(help="How many clients.", min=1)]


@app.callback()
def root() -> None:
    """Run a study on real clients, over Flower."""
    needs("fedtide deploy", "flower", "flwr")


@app.command()
def init(
    study: Annotated[Path, typer.Argument(help="A study file (TOML).", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="A new folder for the app.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(help="A data.py for the clients' own data.", show_default=False),
    ] = None,
) -> None:
    """Write a Flower app for a study: ready to run, with a hook for the clients' own data."""
    from fedtide.deploy.template import init as write

    data = write(study, folder, data)
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
        typer.Option(
            "--number",
            help="The number of this client; repeat it for several. Without it: that of the key "
            "in --keys, or the lowest free one.",
            min=0,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    keys: Annotated[
        Path | None,
        typer.Option(help="The folder with ca.crt and client-NUMBER.key.", show_default=False),
    ] = None,
    settings: Settings = "",
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


Folder = Annotated[Path, typer.Argument(help="A folder that `deploy init` wrote.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Archive = Annotated[
    Path | None,
    typer.Option(
        help="A folder for the models of all sessions; a later run goes on from them.",
        show_default=False,
    ),
]


@app.command()
def server(
    folder: Folder = Path(),
    keys: Annotated[
        Path | None,
        typer.Option(help="A folder that `deploy keys` wrote.", show_default=False),
    ] = None,
    clients: Annotated[
        int, typer.Option(help="Wait for so many clients before the first round.", min=1)
    ] = 1,
    wait: Annotated[int, typer.Option(help="Seconds in which the first clients must come.")] = 3600,
    port: Annotated[int, typer.Option(help="On 127.0.0.1, where tunnels end.", min=1)] = 8000,
    out: Out = Path("runs"),
    archive: Archive = None,
) -> None:
    """Run the study of an app with clients on other machines, which connect through tunnels."""
    from fedtide.deploy.keys import Keys

    known = Keys(keys.resolve()) if keys else None
    with _deployment(folder, clients, out, known, port) as place:
        _start_server(place)
        for number in sorted(known.clients) if known else ():
            place.register(number)
        what = "--keys KEYS" if known else "--number NUMBER"
        console.print(
            f"Start clients: fedtide deploy client {what} --server {place.address}", soft_wrap=True
        )
        console.print("Ctrl-C stops the server.")
        _follow(place, out, clients, archive, wait)


@app.command()
def up(
    folder: Folder = Path(),
    clients: Clients = 3,
    out: Out = Path("runs"),
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS and keys made for this run.")
    ] = False,
    archive: Archive = None,
    settings: Settings = "",
    cold: Annotated[
        bool, typer.Option("--cold", help="Start a process for every message, as Flower does.")
    ] = False,
) -> None:
    """Start a server and clients on this machine, run the study, and stop everything again."""
    from fedtide.deploy.keys import generate

    with TemporaryDirectory(prefix="fedtide-") as home:
        made = generate(Path(home) / "keys", clients) if secure else None
        with _deployment(folder, clients, out, made) as place:
            _start_server(place)
            for number in range(clients):
                if made:
                    place.register(number)
            place.start_client(*range(clients), settings=settings, cold=cold)
            console.print(f"{clients} clients are starting; Ctrl-C stops everything.")
            _follow(place, out, clients, archive)


@app.command()
def status(
    out: Annotated[Path, typer.Argument(help="The folder for results of the server.")] = Path(
        "runs"
    ),
) -> None:
    """Show which clients of a deployment are here, what they replied, and how far it is."""
    from fedtide.deploy.status import shown
    from fedtide.record.deployment import newest

    found = newest(out)
    if found is None:
        raise ConfigError(
            f"deploy status: the folder must have a deployment's log, <study>/deployment.jsonl. Got "
            f"{str(out)!r} without one. Name the folder given as --out."
        )
    for part in shown(*found):
        console.print(part)


@contextmanager
def _deployment(
    folder: Path, clients: int, out: Path, keys: Keys | None, port: int = 0
) -> Iterator[Deployment]:
    """The processes on this machine, after everything that can be checked was checked."""
    from fedtide.deploy.template import check_app
    from fedtide.deploy.up import Deployment

    check_app(folder, clients)
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    logs = out / "logs" / time.strftime("%Y%m%d-%H%M%S")
    with (
        TemporaryDirectory(prefix="fedtide-") as home,
        Deployment(folder, Path(home) / "flower", keys, logs, port) as place,
    ):
        console.print(f"Logs: {logs}", soft_wrap=True)
        yield place


def _start_server(place: Deployment) -> None:
    began = time.monotonic()
    place.start_server()
    console.print(f"Flower's SuperLink is up after {time.monotonic() - began:.0f} s.")


def _follow(
    place: Deployment, out: Path, clients: int, archive: Path | None, wait: int = 0
) -> None:
    """Show what the server says, and where the results are."""
    for line in place.run(out, clients, archive, wait):
        console.print(line, markup=False, soft_wrap=True)
    folder = line.partition(" ")[2]
    console.print(f"Models and journal: {folder}", soft_wrap=True)
    console.print(f"Report: fedtide report {folder}", soft_wrap=True)
    console.print(f"Logs: {place.logs}", soft_wrap=True)
