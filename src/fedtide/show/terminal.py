"""What the terminal shows while a study runs and when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live as Screen
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedtide.measure.names import names
from fedtide.measure.profile import profile
from fedtide.measure.results import ResultRow, Results
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.files import write_json
from fedtide.record.folder import StudyFolder
from fedtide.record.line import Line
from fedtide.record.line import Progress as News
from fedtide.show.columns import Column, Entry, marked, result_columns
from fedtide.show.report.pairs import beside_best, pair_row, titles

WIDTH = 80  # characters of a terminal, unless it is known
ROOMY = 24  # characters for a setting before columns of numbers are left out for it
# Metrics whose columns are left out first where there are too many, then the others from the right; the
# score stays, and the report has them all.
SPARE = (
    "recovery_bytes",
    "start_joules",
    "start_seconds",
    "bytes_up",
    "best_accuracy",
    "best_score",
    "wall_seconds",
    "personal_worst",
    "client_mean",
    "proxy_client_mean",
    "start_bytes",
    "snapshot_share",
    "recovery_joules",
    "joules",
    "joules_to_target",
    "latency",
    "seconds_to_target",
    "undefended_rounds",
    "simulated_epsilon",
    "epsilon",
    "unserved",
    "waiting_rounds",
    "recovery_seconds",
    "rounds_to_target",
    "recovery_rounds",
)
NAMED = 3  # folders of other runs
MOST_PAIRS = 12  # rows of the table of differences
ROUNDING = 1e-9  # relative: a smaller standard deviation is rounding


class RunStatus(NamedTuple):
    """How far one run has come."""

    line: Line  # of its last round
    score: float | None = None  # of the last round in which the model was tested
    best: float | None = None

    def after(self, line: Line, scale: Scale = ACCURACY) -> RunStatus:
        """The same run one round later."""
        new = scale.value(line)
        if new is None:
            return self._replace(line=line)
        return RunStatus(line, new, scale.best([new, new if self.best is None else self.best]))


class LiveView:
    """A progress bar over all rounds of a study and a row for every run at work.

    Where the output is no terminal, a line for every run that has ended. `rounds` has the length of each run,
    by the label of its settings and its seed; `named` says what each label is called.
    """

    def __init__(
        self,
        study: str,
        rounds: Mapping[tuple[str, int], int],
        console: Console,
        quiet: bool,
        named: Mapping[str, str],
        scale: Scale = ACCURACY,
    ) -> None:
        self._rounds, self._named, self._scale = rounds, named, scale
        self._running: dict[tuple[str, int], RunStatus] = {}
        self._ended = 0
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
        self._console, self._quiet = console, quiet
        self._is_shown = console.is_terminal and not quiet

    def watch(self, news: News) -> None:
        """Show a finished round."""
        run = (news.label, news.seed)
        before = self._running.get(run, RunStatus(news.line))
        self._running[run] = before.after(news.line, self._scale)
        if news.line["t"] + 1 == self._rounds[run]:
            self._log(run, self._running.pop(run))
        self._progress.update(self._task, advance=1)

    def _log(self, run: tuple[str, int], last: RunStatus) -> None:
        """Print a line about a run that has ended, for logs of jobs."""
        self._ended += 1
        if self._quiet or self._is_shown:
            return
        label, seed = run
        name = "" if self._scale.is_accuracy else f"{self._scale.name} "
        run_ = f"{self._named[label]}, seed {seed}: {name}{self._text(last.score)}"
        text = f"{self._ended}/{len(self._rounds)}: {run_}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def view(self) -> Group:
        """The progress bar and the table of running runs as they are now."""
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("running", overflow="fold", ratio=1)
        for name in ("seed", "round", self._scale.name, "best", "clients"):
            table.add_column(name, justify="right", no_wrap=True)
        running = list(self._running.items())  # a copy: rounds arrive from another thread
        for (label, seed), (line, score, best) in running:
            table.add_row(
                Text(self._named[label]),
                str(seed),
                f"{line['t'] + 1}/{self._rounds[label, seed]}",
                self._text(score),
                self._text(best),
                f"{line['cohort']:,} of {line['population']:,}",
            )
        return Group(self._progress, table) if running else Group(self._progress)

    def _text(self, score: float | None) -> str:
        return "-" if score is None else self._scale.text(score)

    def __enter__(self) -> Self:
        if self._is_shown:
            self._screen.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            self._screen.stop()


def result_table(found: Results, width: int = WIDTH) -> Table:
    """One row per setting, with the columns and the bold numbers of the report, as far as they fit.

    Columns that do not fit are named below the table.
    """
    seeds = len(found.seeds)
    title = f"{found.study}: mean ± std over {seeds} seeds" if seeds > 1 else found.study
    columns = {column: marked(found.rows, column) for column in result_columns(found)}
    heads, lines = found.keys or ["setting"], [_words(found, row) for row in found.rows]
    full = _setting_widths(heads, lines, ROOMY)
    if sum(full) + _width(columns) > width and len(heads) > 1:
        heads, lines = ["setting"], [[found.name(row)] for row in found.rows]
    hidden = []
    others = [c.metric for c in reversed(columns) if c.metric != found.scale.metric("")]
    for metric in found.columns[::-1] or [*SPARE, *others]:  # of chosen ones, the last ones first
        if sum(_setting_widths(heads, lines, ROOMY)) + _width(columns) > width:
            hidden += [column.title for column in columns if column.metric == metric]
            columns = {c: entries for c, entries in columns.items() if c.metric != metric}
    caption = f"In the report only: {', '.join(hidden)}." if hidden else None
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", box=SIMPLE_HEAD
    )
    for head in heads:
        table.add_column(head, overflow="fold")
    for column in columns:
        table.add_column(column.short, justify="right", no_wrap=True)
    for place, words in enumerate(lines):
        entries = [column[place] for column in columns.values()]
        texts = [Text(entry.text, "bold" if entry.best else "") for entry in entries]
        table.add_row(*map(Text, words), *texts)
    return table


def _words(found: Results, row: ResultRow) -> list[str]:
    return [row.words.get(key, "") for key in found.keys] or ["all"]


def _setting_widths(heads: Sequence[str], lines: Sequence[Sequence[str]], most: int) -> list[int]:
    """The characters that columns of settings should have: all, or at least the longest word."""
    widths = []
    for head, *texts in zip(heads, *lines, strict=True):
        longest = max(len(word) for text in (head, *texts) for word in text.split() or [""])
        widths.append(3 + min(max(map(len, (head, *texts))), max(longest, most)))
    return widths


def _width(columns: Mapping[Column, Sequence[Entry]]) -> int:
    """The characters that columns take, with three spaces each, and the table's edges."""
    texts = [[*c.short.split("\n"), *(e.text for e in entries)] for c, entries in columns.items()]
    return 2 + sum(3 + max(map(len, column)) for column in texts)


def pair_table(found: Results, width: int = WIDTH) -> Table | None:
    """By how much the best setting is ahead of each other one, the nearest first.

    None if there are fewer than two others, of which a sentence tells, or several problems.
    """
    if len(found.problems) != 1 or not found.compared:
        return None
    metric, scale = found.compared[0], found.scale
    beside = beside_best(found, metric, found.problems[0].rows)
    if len(beside) < 2:
        return None
    best = found.name(next(row for row in found.rows if row.number not in beside and row.final))
    gaps = {
        n: (-pair.difference if pair.first == n else pair.difference) for n, pair in beside.items()
    }
    order = sorted(beside, key=lambda number: gaps[number])[:MOST_PAIRS]
    unit = ", in points" if scale.is_accuracy else ""
    more = len(beside) - len(order)
    table = Table(
        title=f"How far {best} is ahead: {titles(scale)[metric]}{unit}",
        title_justify="left",
        caption=f"In the report: {more} more." if more else None,
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("ahead of", overflow="fold")
    for head in ("by", "95 % interval", "p (Holm)", "more seeds\nneeded"):
        table.add_column(head, justify="right", no_wrap=True)
    for number in order:
        row = pair_row(found, metric, beside[number], gaps[number])
        told = (row.difference, row.interval, row.p_holm, row.more)
        table.add_row(Text(found.name(found.rows[number])), *told)
    return table


def costs(
    study: str, settings: Sequence[Mapping[str, Any]], prices: Sequence[Mapping[str, Any]]
) -> Table:
    """What a round costs with each of these settings: mean and spread over drawn rounds."""
    table = Table(title=f"{study}: one round", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("setting", overflow="fold")
    for column in ("", "a round", "down", "compute", "up"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, price in zip(names(settings), prices, strict=True):
        table.add_row(Text(name), *_amounts(price, "seconds"))
        taking_part = f"{price['take_part']:.1f} of {price['asked']:.1f} take part"
        table.add_row(Text(taking_part, "dim"), *_amounts(price, "joules"), end_section=True)
    return table


def _amounts(price: Mapping[str, Any], what: str) -> list[str]:
    """A cost with its standard deviation, then its phases."""
    parts = [f"{part:,.3g}" for part in price[f"{what}_by_phase"].values()]
    mean, std = price[what]["mean"], price[what]["std"]
    spread = f" ± {std:.2g}" if std > ROUNDING * mean else ""
    return [what, f"{mean:,.4g}{spread}", *parts]


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
