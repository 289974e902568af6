"""Real clients over Flower come and go: what happens to the accuracy of docs/deploy.md's example?

    python benchmarks/deployed.py

Starts a SuperLink and SuperNodes here with the study `studies/deploy.toml`: three clients at first,
then clients arrive and leave. Prints the accuracy before and after each change, with the starts "soup" and
"previous".
"""

import json
import tempfile
import time
from pathlib import Path
from threading import Thread

from rich.console import Console
from rich.table import Table

from fedtide.deploy.template import init
from fedtide.deploy.up import Deployment, stop

STUDY = Path(__file__).parents[1] / "studies/deploy.toml"
ROUNDS = 20
CHANGES = {5: ("starts", 3), 9: ("ends", 0), 13: ("starts", 4), 16: ("starts", 0)}  # by round
STARTS = ("soup", "previous")


def lines_of(out: Path) -> list[dict]:
    """The journal of the run, as far as it has come."""
    found = list(out.glob("*/1/cells/*/*/journal.jsonl"))
    text = found[0].read_text() if found else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def deployed(folder: Path, start: str) -> list[dict]:
    """The journal of a deployment whose clients come and go."""
    study = folder / "study.toml"
    text = STUDY.read_text().replace("rounds = 5", f"rounds = {ROUNDS}")
    study.write_text(text.replace('kind = "soup"', f'kind = "{start}"'))
    init(study, folder / "app")
    with Deployment(folder / "app", folder / "flower") as place:
        place.start_server()
        clients = {number: place.start_client(number) for number in range(3)}
        told = Thread(target=lambda: list(place.run(folder / "out", 3)))
        told.start()
        left = dict(CHANGES)
        while told.is_alive():
            done = len(lines_of(folder / "out"))
            for t in [t for t in left if t <= done]:
                does, number = left.pop(t)
                if does == "starts":
                    clients[number] = place.start_client(number)
                else:
                    stop([clients[number]])
            time.sleep(0.5)
    return lines_of(folder / "out")


table = Table("start", "round", "change", "before %", "after %", "three rounds later %")
for start in STARTS:
    with tempfile.TemporaryDirectory() as folder:
        lines = deployed(Path(folder), start)
    accuracy = [100 * line["accuracy"] for line in lines]
    for t, line in list(enumerate(lines))[1:]:
        changes = [
            f"{line[key]['ids']} {key}"
            for key in ("arrived", "left")
            if line.get(key, {}).get("ids")
        ]
        if changes:
            numbers = (accuracy[t - 1], accuracy[t], accuracy[min(t + 3, len(lines) - 1)])
            cells = (f"{number:.1f}" for number in numbers)
            table.add_row(start, str(t), ", ".join(changes), *cells)
Console().print(table)
