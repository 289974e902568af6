"""A running deployment in the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from socket import gethostname
from statistics import median
from time import time

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedtide.record.deployment import DeploymentState

NEWS = 5  # of the latest


def shown(log: Path, state: DeploymentState) -> list[RenderableType]:
    """What is known of a deployment: how far it is, its clients, and what happened last."""
    head = [f"{state.study}: {word(state)}, log {log}"]
    if state.rounds:
        t, seconds, cohort, population = state.rounds[-1]
        usual = median(each[1] for each in state.rounds[-20:])
        head.append(
            f"round {t}: {cohort} of {population} clients, {seconds:.1f} s (median {usual:.1f} s)"
        )
    if state.waiting:
        head.append(f"waiting for the replies of clients {sorted(state.waiting)}")
    table = Table("client", "here", "examples", "replies", "last reply", "late", "failed", box=None)
    for number, client in sorted(state.clients.items()):
        last = "-" if client.seconds is None else f"{client.seconds:.1f} s"
        cells = (client.examples or "-", client.replies, last, client.late, client.failed)
        table.add_row(str(number), "yes" if client.here else "no", *map(str, cells))
    news = [Text(f"- {words}") for words in state.news[-NEWS:]]
    return [*map(Text, head), *([table] if state.clients else []), *news]


def word(state: DeploymentState) -> str:
    """Is it running?"""
    if state.ended:
        return f"{state.ended} ({state.why})" if state.why else state.ended
    ago = f"last event {time() - state.last:.0f} s ago"
    if state.host == gethostname() and not _is_alive(state.pid):
        return f"stopped, {ago}"
    return f"running since {(time() - state.since):.0f} s, {ago}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
