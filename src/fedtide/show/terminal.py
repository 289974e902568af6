"""What a person sees in the terminal while a study runs, and when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live as Screen
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedtide.measure.profile import profile
from fedtide.measure.summary import spread
from fedtide.record.files import write_json
from fedtide.record.folder import StudyFolder, word
from fedtide.record.line import Line
from fedtide.record.line import Progress as News

Metrics = dict[str, Any]

# In two lines, so that the settings have room in a narrow window.
AFTER, RECOVERY = "after\nchanges %", "rounds to\nrecover"
LATENCY = "network\nseconds"
EPSILON, SIMULATED = "epsilon", "simulated\nepsilon"
MOST = 5  # columns of numbers
NAMED = 3  # folders of other runs
SPARE = ("MB up", "best %", "seconds", "snapshots %", "joules")  # left out first


class RunStatus(NamedTuple):
    """How far one run has come."""

    line: Line  # of its last round
    accuracy: float | None = None  # the last one: not every round has one
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
        self._seen = console.is_terminal and not quiet

    def watch(self, news: News) -> None:
        """Show a finished round."""
        run = (news.label, news.seed)
        self._running[run] = self._running.get(run, RunStatus(news.line)).after(news.line)
        if news.line["t"] + 1 == self._rounds[run]:
            del self._running[run]
        self._progress.update(self._task, advance=1)

    def view(self) -> Group:
        """What the screen shows now."""
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("running", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("seed", "round", "accuracy", "best", "clients"):
            table.add_column(name, justify="right", no_wrap=True)
        standings = list(self._running.items())  # a copy: rounds arrive from another thread
        for (label, seed), (line, accuracy, best) in standings:
            table.add_row(
                Text(label),
                str(seed),
                f"{line['t'] + 1}/{self._rounds[label, seed]}",
                _accuracy(accuracy),
                _accuracy(best),
                f"{line['cohort']:,} of {line['population']:,}",
            )
        return Group(self._progress, table) if standings else Group(self._progress)

    def __enter__(self) -> Self:
        if self._seen:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._seen:
            self._screen.stop()


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def results(study: str, seeds: int, summary: dict[str, Any]) -> Table:
    """The table at the end: one row per setting, mean and spread over the seeds; the best in bold."""
    cells = summary["cells"]
    title = f"{study}: mean ± std over {seeds} seeds" if seeds > 1 else study
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(key for cell in cells for key in cell["settings"]))
    for name in names or ["setting"]:
        table.add_column(name, overflow="fold", min_width=8)
    columns = dict(COLUMNS)
    if not any(_by_seed(cell["metrics"]["transition_accuracy"]) for cell in cells):
        del columns[AFTER], columns[RECOVERY]
    else:
        del columns["best %"]  # of different clients in different sessions: it says little
    if not any("snapshot_share" in cell["metrics"] for cell in cells):
        del columns["snapshots %"]
    if not any(cell["metrics"]["latency"]["mean"] for cell in cells):
        del columns[LATENCY], columns["joules"]  # nothing costs anything
    for column, metric in ((EPSILON, "epsilon"), (SIMULATED, "simulated_epsilon")):
        if not any(metric in cell["metrics"] for cell in cells):
            del columns[column]
    while len(columns) > MOST:  # the report has them all; the settings must have room
        del columns[next(column for column in SPARE if column in columns)]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    scores = [_score(cell["metrics"]) for cell in cells]
    for cell, score in zip(cells, scores, strict=True):
        row = [word(cell["settings"].get(name, "")) for name in names] or ["all"]
        row += [show(cell["metrics"]) for show in columns.values()]
        is_best = len(cells) > 1 and score == max(scores)
        table.add_row(*row, style="bold" if is_best else None)
    return table


def _score(metrics: Metrics) -> float:
    """What decides which setting is best: accuracy after changes where clients change, else at the end."""
    after = _by_seed(metrics["transition_accuracy"])
    return float(fmean(after) if after else metrics["accuracy"]["mean"])


def _by_seed(metric: Metrics) -> list[float]:
    """A metric of sessions: its mean over those of each seed, which may differ in number."""
    return [fmean(sessions) for sessions in metric["values"] if sessions]


def _percent(metric: Metrics) -> str:
    mean, std = 100 * metric["mean"], 100 * metric["std"]
    return f"{mean:.2f} ± {std:.2f}" if len(metric["values"]) > 1 else f"{mean:.2f}"


def _short(number: float) -> str:
    """A cost of any size: 12,345 or 0.0123."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def _after_changes(metrics: Metrics) -> str:
    """The mean over all transitions of a run."""
    runs = _by_seed(metrics["transition_accuracy"])
    return _percent(spread(runs)) if runs else "-"


def _recovery(metrics: Metrics) -> str:
    """Rounds until 95 % of the first setting's peak, the mean over all transitions."""
    runs = _by_seed(metrics["recovery_rounds"])
    return f"{fmean(runs):.1f}" if runs else "-"


def _snapshots(metrics: Metrics) -> str:
    """The share of uniform rounds, where participation is FAST."""
    return _percent(metrics["snapshot_share"]) if "snapshot_share" in metrics else ""


def _epsilon(metrics: Metrics, name: str = "epsilon") -> str:
    """The largest of all seeds; empty without noise."""
    return _short(max(metrics[name]["values"])) if name in metrics else ""


COLUMNS: dict[str, Callable[[Metrics], str]] = {
    "accuracy %": lambda metrics: _percent(metrics["accuracy"]),
    "best %": lambda metrics: _percent(metrics["best_accuracy"]),
    AFTER: _after_changes,
    RECOVERY: _recovery,
    "snapshots %": _snapshots,
    EPSILON: _epsilon,
    SIMULATED: lambda metrics: _epsilon(metrics, "simulated_epsilon"),
    "MB up": lambda metrics: f"{metrics['bytes_up']['mean'] / 1e6:.1f}",
    LATENCY: lambda metrics: _short(metrics["latency"]["mean"]),
    "joules": lambda metrics: _short(metrics["joules"]["mean"]),
    "seconds": lambda metrics: f"{metrics['wall_seconds']['mean']:.1f}",
}


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
    """A cost with its spread, then its phases."""
    parts = [f"{part:,.3g}" for part in price[f"{what}_by_phase"].values()]
    return [what, f"{price[what]['mean']:,.4g} ± {price[what]['std']:.2g}", *parts]


def straggling(price: Mapping[str, Any], most: int = 10) -> str:
    """Who straggles how often, the worst first."""
    shares = sorted(price["straggle_share"].items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{client} ({share:.0%})" for client, share in shares[:most])
    return named + (f" and {len(shares) - most} more" if len(shares) > most else "")


def kept(folder: StudyFolder, study: Path) -> str:
    """Where the results are, and those of earlier runs of the same study."""
    others = [str(other.path) for other in StudyFolder.all_of(study) if other.path != folder.path]
    named = ", ".join(others[:NAMED]) + f" and {len(others) - NAMED} more" * (len(others) > NAMED)
    return f"Kept in {folder.path}" + (f"; other runs of this study: {named}" if others else "")


def where_time_went(folder: StudyFolder) -> Table:
    """The phases of all rounds of a study, which also go to its profile.json."""
    phases = profile(lines for cell in folder.journals() for lines in cell.runs.values())
    write_json(folder.path / "profile.json", [phase._asdict() for phase in phases])
    table = Table("phase", title="Where the time went")
    for name in ("seconds", "%", "ms per round"):
        table.add_column(name, justify="right")
    for phase in phases:
        numbers = (phase.seconds, 100 * phase.share, phase.milliseconds)
        table.add_row(phase.name, *(f"{number:.2f}" for number in numbers))
    return table
