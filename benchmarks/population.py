"""Does a round cost more when the population grows? A cohort of 100 out of 1,000 to 1,000,000 clients.

Each population runs in a process of its own. Every client holds three examples of a made-up dataset. The
index arrays (8 bytes per example, 8 per client) are the only thing that may grow; everything else is compared
per round. Ratios are taken within one run of this script.

    .venv/bin/python benchmarks/population.py
"""

import json
import resource
import statistics
import subprocess
import sys

SIZES = [1_000, 10_000, 100_000, 1_000_000]
ROUNDS, COHORT, EXAMPLES, EACH = 60, 100, 20_000, 3
REPETITIONS = 3  # sizes take turns, so that a busy machine is busy for all of them


def measure(clients: int, kind: str) -> dict[str, float]:
    """Median seconds per round after a warm-up, and peak memory, for one population."""
    import numpy as np
    import torch

    from fedtide import Data, Evaluation, Experiment, Train, from_tensors, run
    from fedtide.algorithms import ALGORITHMS
    from fedtide.data import holdings
    from fedtide.population.participation import Uniform
    from fedtide.population.sessions import Fixed

    numbers = torch.Generator().manual_seed(0)
    inputs = torch.rand(EXAMPLES, 64, generator=numbers)
    labels = torch.randint(10, (EXAMPLES,), generator=numbers)

    class Shared(Data):
        """No partition gives one example to many clients; this benchmark does."""

        def split(self, *_: object) -> holdings.Static:
            order = np.random.default_rng(0).integers(EXAMPLES, size=EACH * clients)
            return holdings.Static(order, np.arange(0, EACH * clients + 1, EACH))

    history = run(
        Experiment(
            data=Shared(name=from_tensors((inputs, labels), (inputs[:100], labels[:100]))),
            population=Fixed(clients=clients, rounds=ROUNDS),
            participation=Uniform(clients=COHORT),
            algorithm=ALGORITHMS[kind](),
            train=Train(steps=2, batch_size=2),
            evaluation=Evaluation(every=ROUNDS),
        )
    )
    seconds = [sum(line["seconds"].values()) for line in history.rounds[5:-1]]
    return {
        "milliseconds": 1000 * statistics.median(seconds),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "index_megabytes": 8 * (EACH + 2) * clients / 2**20,
    }


def main() -> None:
    """Every size in turn, several times, and the ratios to the smallest."""
    for kind in ("fedavg", "scaffold"):
        print(f"\n{kind}: a cohort of {COHORT}, medians over {REPETITIONS} runs of {ROUNDS} rounds")
        print(
            f"{'clients':>10} {'ms/round':>9} {'ratio':>6} {'MB':>7} {'index MB':>9} {'MB - index':>11}"
        )
        found: dict[int, list[dict[str, float]]] = {clients: [] for clients in SIZES}
        for _ in range(REPETITIONS):
            for clients, runs in found.items():
                call = [sys.executable, __file__, str(clients), kind]
                done = subprocess.run(call, capture_output=True, text=True, check=True)
                runs.append(json.loads(done.stdout))
        first = 0.0
        for clients, runs in found.items():
            one = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
            first = first or one["milliseconds"]
            print(
                f"{clients:>10,} {one['milliseconds']:>9.2f} {one['milliseconds'] / first:>6.2f}"
                f" {one['megabytes']:>7.0f} {one['index_megabytes']:>9.1f}"
                f" {one['megabytes'] - one['index_megabytes']:>11.0f}"
            )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
    else:
        main()
