"""Write one CSV file per site: Friedman's regression function, whose inputs each site draws differently.

y = 10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5 + noise (J. Friedman, "Multivariate Adaptive Regression
Splines", 1991); x6 to x10 have no effect. A site draws every input from a beta distribution of its own.
"""

import sys
from pathlib import Path

import numpy as np


def write(folder: Path, sites: int = 20, rows: int = 150) -> None:
    """Write so many files of `rows` rows on average; the largest has ten times those of the smallest."""
    rng = np.random.default_rng(1991)
    sizes = np.geomspace(1, 10, sites)
    folder.mkdir(parents=True, exist_ok=True)
    for site, size in enumerate(np.rint(sizes / sizes.mean() * rows).astype(int), start=1):
        a, b = rng.uniform(0.5, 4, (2, 10))
        x = rng.beta(a, b, (size, 10)).round(4)
        y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
        y += 10 * x[:, 3] + 5 * x[:, 4] + rng.normal(size=size)
        names = [*(f"x{i}" for i in range(1, 11)), "y"]
        table = np.column_stack([x, y.round(4)])
        lines = [",".join(names), *(",".join(map(str, row)) for row in table)]
        (folder / f"site{site}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "sites"))
