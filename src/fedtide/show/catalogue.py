"""`fedtide runs` in the terminal: studies and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedtide.measure.catalogue import ListedRun, entry, varying
from fedtide.record.folder import StudyFolder

SHOWN = 6  # settings that differ; further ones are only counted


def studies_table(studies: Sequence[Path]) -> Table:
    """One row per study: how many runs, and the newest one."""
    table = _table("study", "runs", "newest", "begun (UTC)", "state")
    for study in studies:
        folders = StudyFolder.all_of(study)
        newest = entry(folders[0])
        name = newest.folder.path.name if newest.folder.path != study else "."
        table.add_row(study.name, str(len(folders)), name, newest.begun, state(newest))
    return table


def runs_table(study: Path) -> Table:
    """One row per run of a study, the newest first, with the settings in which the runs differ."""
    entries = [entry(folder) for folder in StudyFolder.all_of(study)]
    keys = varying([one.settings for one in entries])
    table = _table("run", "begun (UTC)", "state", "what differs between the runs")
    for one in entries:
        name = one.folder.path.name if one.folder.path != study else "."
        table.add_row(name, one.begun, state(one), _differences(one, keys))
    return table


def state(one: ListedRun) -> str:
    """`finished`, or `4 of 9 runs`."""
    return "finished" if one.folder.is_finished else f"{one.done} of {one.total} runs"


def _differences(one: ListedRun, keys: Sequence[str]) -> str:
    words = [f"{key} = {one.settings[key]}" for key in keys if one.settings.get(key)]
    more = [f"and {len(words) - SHOWN} more"] if len(words) > SHOWN else []
    return "\n".join([*words[:SHOWN], *more]) or "nothing"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
