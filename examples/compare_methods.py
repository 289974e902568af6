"""A study from Python: three methods, two seeds, the same clients and the same batches."""

import sys
import tempfile
from pathlib import Path

from fedtide import Cell, Data, Dirichlet, Experiment, Fixed, Study, Train, run_study


def main(out: Path) -> None:
    """Run the study and print what came of it."""
    cells = tuple(
        Cell(
            {"algorithm": kind},
            Experiment(
                data=Data(partition=Dirichlet(alpha=0.3)),
                population=Fixed(clients=20, rounds=10),
                algorithm=kind,
                train=Train(epochs=1, lr=0.1),
            ),
        )
        for kind in ("fedavg", "scaffold", "moon")
    )
    study = Study(name="methods", cells=cells, seeds=(1, 2))
    folder, summary = run_study(study, out, jobs=1)
    for cell in summary["cells"]:
        print(cell["settings"]["algorithm"], f"{cell['metrics']['accuracy']['mean']:.1%}")
    print(f"report: {folder.path / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
