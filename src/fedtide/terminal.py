"""What a person sees in the terminal while a study runs, and when it has ended."""

from __future__ import annotations

from statistics import fmean
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedtide.record.folder import word
from fedtide.record.summary import spread
from fedtide.study import Progress as News
from fedtide.study import Study


class Live:
    """A bar over all rounds of a study, with the latest accuracy; silent where nobody is looking."""

    def __init__(self, study: Study, console: Console, quiet: bool) -> None:
        total = sum(run.experiment.population.length for run in study.runs)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TextColumn("accuracy {task.fields[accuracy]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task(study.name, total=total, accuracy="-")

    def watch(self, news: News) -> None:
        """Show a finished round."""
        accuracy = news.line["accuracy"]
        shown = {} if accuracy is None else {"accuracy": f"{accuracy:.1%}"}
        description = f"{news.label}, seed {news.seed}"
        self._progress.update(self._task, advance=1, description=description, **shown)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


def results(study: Study, summary: dict[str, Any]) -> Table:
    """The table at the end: one row per setting, mean and spread over the seeds."""
    seeds = len(study.seeds)
    title = f"{study.name}: mean ± std over {seeds} seeds" if seeds > 1 else study.name
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(key for cell in summary["cells"] for key in cell["settings"]))
    for name in names or ["setting"]:
        table.add_column(name, overflow="fold")
    sessions = any(cell["metrics"]["transition_accuracy"]["mean"] for cell in summary["cells"])
    columns = [
        "accuracy %",
        "best %",
        *(["after changes %"] if sessions else []),
        "MB up",
        "seconds",
    ]
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    best = max(cell["metrics"]["accuracy"]["mean"] for cell in summary["cells"])
    for cell in summary["cells"]:
        metrics = cell["metrics"]
        row = [word(cell["settings"].get(name, "")) for name in names] or ["all"]
        row += [_percent(metrics["accuracy"]), _percent(metrics["best_accuracy"])]
        row += (
            [_percent(spread([fmean(seed) for seed in metrics["transition_accuracy"]["values"]]))]
            if sessions
            else []
        )
        row += [
            f"{metrics['bytes_up']['mean'] / 1e6:.1f}",
            f"{metrics['wall_seconds']['mean']:.1f}",
        ]
        table.add_row(*row, style="bold" if metrics["accuracy"]["mean"] == best else None)
    return table


def _percent(metric: dict[str, Any]) -> str:
    mean, std = 100 * metric["mean"], 100 * metric["std"]
    return f"{mean:.2f} ± {std:.2f}" if len(metric["values"]) > 1 else f"{mean:.2f}"
