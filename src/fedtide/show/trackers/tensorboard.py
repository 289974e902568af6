"""TensorBoard: event files beside the journals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedtide.show.trackers.base import Logbook, Tracked, Tracker

FLUSH = 2  # seconds after which waiting numbers are written


@dataclass(frozen=True, kw_only=True)
class TensorBoard(Tracker):
    """Event files beside the journals: tensorboard --logdir runs/<study>."""

    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)

    def open(self, study: str, source: str, folder: Path) -> Logbook:
        return _EventFiles(source)


class _EventFiles(Logbook):
    def __init__(self, source: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter
        self._source = source

    def begin(self, run: Tracked) -> Any:
        # A resumed run is written from its first round on: hide what an earlier process wrote of it.
        page = self._writer(run.folder, purge_step=0, flush_secs=FLUSH)
        code = "    " + self._source.replace("\n", "\n    ")  # indented, as code in Markdown is
        page.add_text("study", code)
        return page

    def write(self, page: Any, t: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            page.add_scalar(name, value, t)

    def end(self, page: Any, finished: bool) -> None:
        page.close()
