"""What the terminal shows while a study runs and when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live as Screen
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedtide.measure.profile import profile
from fedtide.measure.results import Results
from fedtide.record.files import write_json
from fedtide.record.folder import StudyFolder, word
from fedtide.record.line import Line
from fedtide.record.line import Progress as News
from fedtide.show.columns import Column, Entry, marked, result_columns

ROOM = 60  # characters for columns of numbers: a terminal has about 80, and settings need some
SPARE = (  # metrics whose columns are left out first where there are too many; the report has them all
    "bytes_up",
    "best_accuracy",
    "wall_seconds",
    "snapshot_share",
    "joules",
    "joules_to_target",
    "latency",
    "seconds_to_target",
)
NAMED = 3  # folders of other runs


class RunStatus(NamedTuple):
    """How far one run has come."""

    line: Line  # of its last round
    accuracy: float | None = None  # of the last round in which the model was tested
    best: float | None = None

    def after(self, line: Line) -> RunStatus:
        """The same run one round later."""
        new = line["accuracy"]
        if new is None:
            return self._replace(line=line)
        return RunStatus(line, new, max(new, new if self.best is None else self.best))


class LiveView:
    """A progress bar over all rounds of a study and a row for every run at work; silent without a terminal.

    `rounds` has the length of each run, by the label of its settings and its seed.
    """

    def __init__(
        self, study: str, rounds: Mapping[tuple[str, int], int], console: Console, quiet: bool
    ) -> None:
        self._rounds = rounds
        self._running: dict[tuple[str, int], RunStatus] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeRemainingColumn(),
            TextColumn("left"),
            expand=True,
        )
        self._task = self._progress.add_task(study, total=sum(self._rounds.values()))
        self._screen = Screen(
            get_renderable=self.view, console=console, refresh_per_second=8, transient=True
        )
        self._is_shown = console.is_terminal and not quiet

    def watch(self, news: News) -> None:
        """Show a finished round."""
        run = (news.label, news.seed)
        self._running[run] = self._running.get(run, RunStatus(news.line)).after(news.line)
        if news.line["t"] + 1 == self._rounds[run]:
            del self._running[run]
        self._progress.update(self._task, advance=1)

    def view(self) -> Group:
        """The progress bar and the table of running runs as they are now."""
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("running", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("seed", "round", "accuracy", "best", "clients"):
            table.add_column(name, justify="right", no_wrap=True)
        running = list(self._running.items())  # a copy: rounds arrive from another thread
        for (label, seed), (line, accuracy, best) in running:
            table.add_row(
                Text(label),
                str(seed),
                f"{line['t'] + 1}/{self._rounds[label, seed]}",
                _accuracy(accuracy),
                _accuracy(best),
                f"{line['cohort']:,} of {line['population']:,}",
            )
        return Group(self._progress, table) if running else Group(self._progress)

    def __enter__(self) -> Self:
        if self._is_shown:
            self._screen.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            self._screen.stop()


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def result_table(found: Results) -> Table:
    """One row per setting, with the columns and the bold numbers of the report, as far as they fit."""
    seeds = len(found.seeds)
    title = f"{found.study}: mean ± std over {seeds} seeds" if seeds > 1 else found.study
    table = Table(title=title, title_justify="left")
    for key in found.keys or ["setting"]:
        table.add_column(key, overflow="fold", min_width=8)
    columns = {column: marked(found.rows, column) for column in result_columns(found)}
    for metric in SPARE:
        if _width(columns) > ROOM:
            columns = {c: entries for c, entries in columns.items() if c.metric != metric}
    for column in columns:
        table.add_column(column.short, justify="right", no_wrap=True)
    for place, row in enumerate(found.rows):
        words = [row.words.get(key, "") for key in found.keys] or ["all"]
        entries = [column[place] for column in columns.values()]
        texts = [Text(entry.text, "bold" if entry.best else "") for entry in entries]
        table.add_row(*map(Text, words), *texts)
    return table


def _width(columns: Mapping[Column, Sequence[Entry]]) -> int:
    """The characters that columns take, with two spaces and a line each."""
    texts = [[*c.short.split("\n"), *(e.text for e in entries)] for c, entries in columns.items()]
    return sum(3 + max(map(len, column)) for column in texts)


def costs(
    study: str, settings: Sequence[Mapping[str, Any]], prices: Sequence[Mapping[str, Any]]
) -> Table:
    """What a round costs with each of these settings: mean and spread over drawn rounds."""
    table = Table(title=f"{study}: one round", title_justify="left")
    names = list(dict.fromkeys(key for cell in settings for key in cell))
    for name in names or ["setting"]:
        table.add_column(name, overflow="fold")
    table.add_column("take part", justify="right", no_wrap=True)
    for column in ("", "a round", "down", "compute", "up"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for cell, price in zip(settings, prices, strict=True):
        row = [word(cell.get(name, "")) for name in names] or ["all"]
        table.add_row(*row, f"{price['take_part']:.1f}", *_amounts(price, "seconds"))
        of = f"of {price['asked']:.1f}"
        table.add_row(*[""] * len(row), of, *_amounts(price, "joules"), end_section=True)
    return table


def _amounts(price: Mapping[str, Any], what: str) -> list[str]:
    """A cost with its standard deviation, then its phases."""
    parts = [f"{part:,.3g}" for part in price[f"{what}_by_phase"].values()]
    return [what, f"{price[what]['mean']:,.4g} ± {price[what]['std']:.2g}", *parts]


def straggling(price: Mapping[str, Any], most: int = 10) -> str:
    """Clients with the share of rounds in which they straggle, the largest first."""
    shares = sorted(price["straggle_share"].items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{client} ({share:.0%})" for client, share in shares[:most])
    return named + (f" and {len(shares) - most} more" if len(shares) > most else "")


def kept(folder: StudyFolder, study: Path) -> str:
    """The folder of the results, and the folders of earlier runs of the same study."""
    others = [str(other.path) for other in StudyFolder.all_of(study) if other.path != folder.path]
    named = ", ".join(others[:NAMED]) + f" and {len(others) - NAMED} more" * (len(others) > NAMED)
    return f"Kept in {folder.path}" + (f"; other runs of this study: {named}" if others else "")


def where_time_went(folder: StudyFolder) -> Table:
    """The wall time of each phase, over all rounds of a study; also written to profile.json."""
    phases = profile(lines for cell in folder.journals() for lines in cell.runs.values())
    write_json(folder.path / "profile.json", [phase._asdict() for phase in phases])
    table = Table("phase", title="Where the time went")
    for name in ("seconds", "%", "ms per round"):
        table.add_column(name, justify="right")
    for phase in phases:
        numbers = (phase.seconds, 100 * phase.share, phase.milliseconds)
        table.add_row(phase.name, *(f"{number:.2f}" for number in numbers))
    return table
