"""Weights & Biases: offline runs beside the journals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedtide.show.trackers.base import Logbook, Tracked, Tracker


@dataclass(frozen=True, kw_only=True)
class WandB(Tracker):
    """Weights & Biases, offline: wandb sync runs/<study>/<number>/wandb/offline-run-* sends it later."""

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    project: str = ""  # empty: the study's name

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        return _OfflineRuns(self.project or study, folder)


class _OfflineRuns(Logbook):
    def __init__(self, project: str, folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb = wandb
        self._project = project
        self._folder = folder

    def begin(self, run: Tracked) -> Any:
        return self._wandb.init(
            mode="offline",
            dir=self._folder,
            project=self._project,
            group=run.label[:128],  # the longest that wandb takes
            name=run.name,
            config=run.parameters,
            reinit="create_new",  # several runs of a study are open at the same time
            settings=self._wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        page.log(dict(numbers), step=t)

    def end(self, page: Any, finished: bool) -> None:
        page.finish(exit_code=0 if finished else 1)

    def close(self) -> None:
        self._wandb.teardown()
