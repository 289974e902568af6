"""Prints the accuracy over all rounds of every start on every population as a Markdown table.

    python studies/starts/table.py runs/linear runs/mlp

Below each row is soup's distance to the best other start: the mean over seeds of the paired differences, with
the half-width of its 95 % interval (Student's t).
"""

import json
import sys
from pathlib import Path
from statistics import fmean, stdev

T = {3: 4.303, 5: 2.776}  # 97.5 % quantiles of t with one degree of freedom less than seeds


def rows(folder: Path) -> dict[str, dict[str, list[float]]]:
    """The accuracies by population and start, in percent, one per seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in json.loads((folder / "summary.json").read_text())["cells"]:
        start = cell["settings"]["start"]
        name = start if isinstance(start, str) else f"{start['kind']}, {start['trigger']['kind']}"
        values = [100 * value for value in cell["metrics"]["mean_accuracy"]["values"]]
        found.setdefault(cell["settings"]["case"], {})[name] = values
    return found


def line(population: str, starts: dict[str, list[float]]) -> str:
    """One row of the table."""
    best = max((s for s in starts if s != "soup"), key=lambda s: fmean(starts[s]))
    gaps = [a - b for a, b in zip(starts["soup"], starts[best], strict=True)]
    half = T[len(gaps)] * stdev(gaps) / len(gaps) ** 0.5
    cells = [f"{fmean(values):.1f}" for values in starts.values()]
    return (
        f"| {population} | {' | '.join(cells)} | {fmean(gaps) + 0.0:+.1f} ± {half:.1f} ({best}) |"
    )


def newest(folder: Path) -> Path:
    """The newest run of a study."""
    return max((f.parent for f in folder.glob("*/summary.json")), key=lambda f: int(f.name))


for number, name in enumerate(sys.argv[1:]):
    table = rows(newest(Path(name)))
    if not number:
        heads = list(next(iter(table.values())))
        print("| population |", " | ".join(heads), "| soup against the best other |")  # noqa: T201
        print("|---" * (len(heads) + 2) + "|")  # noqa: T201
    for population, starts in table.items():
        print(line(f"{population} ({Path(name).name})", starts))  # noqa: T201
