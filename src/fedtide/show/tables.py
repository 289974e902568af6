"""Results as text: the result table as LaTeX, Markdown or CSV, and all rounds as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from fedtide.measure.results import ResultRow, Results
from fedtide.measure.scale import Scale
from fedtide.measure.statistics import LEVEL, Paired
from fedtide.record.folder import word
from fedtide.record.line import Line, leaves
from fedtide.show.columns import Entry, result_columns
from fedtide.show.report.pairs import beside_best
from fedtide.show.report.tables import ResultTable, result_table

Cells = Sequence[Any]
Format = Literal["latex", "markdown", "csv"]
Compared = Literal["none", "stars", "intervals"]  # what tables say about differences to the best
STARS = {0.001: "***", 0.01: "**", LEVEL: "*"}

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "\N{EN DASH}": "--",
    "\n": " ",
}


def table(results: Results, format_: Format, compared: Compared = "none") -> str:
    """The result table of a study as text; what `compared` adds is explained in the caption."""
    if format_ == "csv":
        return results_csv(results)
    made = with_differences(result_table(results), results, compared)
    note = _explained(results, compared)
    return latex(made, results, note) if format_ == "latex" else markdown(made, note)


def with_differences(made: ResultTable, results: Results, compared: Compared) -> ResultTable:
    """Mark every setting that is behind the best one: by stars, or by the difference and its interval."""
    if compared == "none":
        return made
    columns = {column.title: column.metric for column in result_columns(results)}
    beside = {
        place: [beside_best(results, columns[title], problem.rows) for problem in results.problems]
        for place, title in enumerate(made.columns)
        if columns.get(title) in results.pairs
    }
    rows = []
    for row in made.rows:
        entries = list(row.entries)
        for place, groups in beside.items():
            pair = next((group[row.number] for group in groups if row.number in group), None)
            if pair:
                text = _stars(pair) if compared == "stars" else _behind(pair, results.scale)
                entries[place] = entries[place]._replace(text=entries[place].text + text)
        rows.append(row._replace(entries=entries))
    return made._replace(rows=rows)


def _stars(pair: Paired) -> str:
    return next((f" {stars}" for level, stars in STARS.items() if pair.p_holm < level), "")


def _behind(pair: Paired, scale: Scale) -> str:
    return f" [{scale.apart(-pair.difference, pair.margin)}]"


def _explained(results: Results, compared: Compared) -> str:
    if compared == "none" or not any(results.pairs.values()):
        return ""
    if compared == "stars":
        return (
            "Stars: behind the best setting with p < 0.05 (*), 0.01 (**), 0.001 (***), paired t-test over "
            "seeds, corrected by Holm's method."
        )
    unit = "in points, " if results.scale.is_accuracy else "less than 0: worse, "
    return f"In brackets: difference to the best setting, {unit}with its 95 % interval (paired t)."


def latex(made: ResultTable, results: Results, note: str = "") -> str:
    """A table for a paper that uses the package booktabs."""
    heads = [*(made.keys or ["setting"]), *made.columns]
    words = "l" * (len(heads) - len(made.columns))
    lines = [
        [
            *map(tex, row.words or [row.label]),
            *(_cell(entry, tex, r"\textbf{", "}") for entry in row.entries),
        ]
        for row in made.rows
    ]
    about = results.about
    caption = " ".join(filter(None, [about.get("question", ""), _spread(results), note]))
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{tex(caption)}}}",
            rf"  \label{{tab:{re.sub(r'[^A-Za-z0-9-]+', '-', str(about['study']))}}}",
            rf"  \begin{{tabular}}{{{words}{'r' * len(made.columns)}}}",
            r"    \toprule",
            f"    {' & '.join(map(tex, heads))} \\\\",
            r"    \midrule",
            *(f"    {' & '.join(line)} \\\\" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def markdown(made: ResultTable, note: str = "") -> str:
    """A table for a README or an issue."""
    keys = list(made.keys or ["setting"])
    lines = [
        [*keys, *made.columns],
        ["---"] * len(keys) + ["---:"] * len(made.columns),
        *(
            [
                *map(_marked, row.words or [row.label]),
                *(_cell(e, _marked, "**", "**") for e in row.entries),
            ]
            for row in made.rows
        ),
    ]
    lines[0] = [_marked(head) for head in lines[0]]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{text}\n{_marked(note)}\n" if note else text


def tex(text: str) -> str:
    """A text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _marked(text: str) -> str:
    """A text with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text.replace("\n", " "))


def _cell(entry: Entry, escape: Callable[[str], str], bold: str, end: str) -> str:
    text = f"{bold}{escape(entry.text)}{end}" if entry.best else escape(entry.text)
    return f"{text} ({escape(entry.published)})" if entry.published else text


def _spread(results: Results) -> str:
    count = len(results.seeds)
    return f"Mean ± standard deviation over {count} seeds." if count > 1 else ""


def results_csv(results: Results) -> str:
    """One line per setting: mean and standard deviation over the seeds of all metrics, or the chosen ones."""
    names = list(dict.fromkeys(name for row in results.rows for name in row.numbers))
    names = results.columns or names
    head = [f"{name}_{part}" for name in names for part in ("mean", "std")]
    lines = [
        [*_settings(results, row), len(row.finished), *_numbers(row, names)] for row in results.rows
    ]
    return written([[*results.keys, "finished_seeds", *head], *lines])


def rounds_csv(results: Results, stride: int = 1) -> str:
    """One line per round of every run, as in the journals: numbers only, every `stride`-th round."""
    sample = {tuple(line): line for line in _lines(results)}  # one line of each set of keys
    names = list(dict.fromkeys(name for line in sample.values() for name in scalars(line)))
    head = [*results.keys, "seed", *names]
    return written(chain([head], _rounds(results, names, stride)))


def scalars(line: Line) -> dict[str, Any]:
    """The numbers of a journal line and of the tables within it, `seconds` as `seconds.train`.

    Tables of tables, such as `fairness`, are left out: only the last line of a run has them.
    """
    return {
        ".".join(path): value
        for path, value in leaves(line)
        if (len(path) <= 2 and isinstance(value, int | float)) or (len(path) == 1 and value is None)
    }


def written(table: Iterable[Cells]) -> str:
    """A table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def _rounds(results: Results, names: Sequence[str], stride: int) -> Iterator[Cells]:
    for row in results.rows:
        for seed, lines in row.runs.items():
            for line in lines[::stride]:
                found = scalars(line)
                yield [*_settings(results, row), seed, *(found.get(name) for name in names)]


def _lines(results: Results) -> Iterator[Line]:
    return (line for row in results.rows for lines in row.runs.values() for line in lines)


def _settings(results: Results, row: ResultRow) -> list[str]:
    return [word(row.settings.get(key, "")) for key in results.keys]


def _numbers(row: ResultRow, names: Sequence[str]) -> Iterator[float | None]:
    for name in names:
        spread = row.numbers.get(name)
        yield from (spread.mean, spread.std) if spread else (None, None)
