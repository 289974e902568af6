"""The result table for papers, pages and programs: LaTeX, Markdown, CSV."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from fedtide.measure.results import Results
from fedtide.show.export import results_csv
from fedtide.show.report.tables import Entry, Table, result_table

Format = Literal["latex", "markdown", "csv"]

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


def table(results: Results, format_: Format) -> str:
    """The result table of a study as text."""
    if format_ == "csv":
        return results_csv(results)
    made = result_table(results)
    return latex(made, results) if format_ == "latex" else markdown(made)


def latex(made: Table, results: Results) -> str:
    """A table for a paper that loads booktabs."""
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
    caption = " ".join(filter(None, [about.get("question", ""), _spread(results)]))
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


def markdown(made: Table) -> str:
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
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def _marked(text: str) -> str:
    """A text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text.replace("\n", " "))


def _cell(entry: Entry, escape: Callable[[str], str], bold: str, end: str) -> str:
    text = f"{bold}{escape(entry.text)}{end}" if entry.best else escape(entry.text)
    return f"{text} ({escape(entry.published)})" if entry.published else text


def _spread(results: Results) -> str:
    count = len(results.seeds)
    return f"Mean ± standard deviation over {count} seeds." if count > 1 else ""
