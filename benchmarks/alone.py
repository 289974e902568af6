"""What FedTide is measured on alone: whole runs, large populations, memory. Each in a process of its own.

python benchmarks/alone.py W7
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
Facts = dict[str, float]


def w7() -> Facts:
    """FLUTE's comparison: logistic regression on MNIST, 1,000 clients, 10 a round, 100 rounds.

    With everything: data, a test in every round. Published on CPUs: Flower 30 min 14 s, FLUTE 3 min 20 s.
    """
    from fedtide import Data, Experiment, Train, run
    from fedtide.population.participation import Uniform
    from fedtide.population.sessions import Fixed

    experiment = Experiment(
        data=Data(name=_mnist()),
        population=Fixed(clients=1000, rounds=100),
        participation=Uniform(clients=10),
        train=Train(lr=0.03, batch_size=10, epochs=1),
    )
    return {"seconds": _seconds(lambda: run(experiment))}


def w8() -> Facts:
    """Seconds per round with a million clients over those with a thousand; the table is population.py's."""
    found = {}
    for clients in (1_000, 1_000_000):
        call = [sys.executable, str(HERE / "population.py"), str(clients), "fedavg"]
        runs = [json.loads(subprocess.check_output(call)) for _ in range(3)]
        found[clients] = min(one["milliseconds"] for one in runs)
    return {"ms, 1e3 clients": found[1_000], "ms, 1e6 clients": found[1_000_000]}


def w9(memory: str = "ram") -> Facts:
    """SCAFFOLD, 1,000 of 400,000 clients a round, until about 100,000 were seen: what stays in memory?"""
    import torch

    from fedtide import Data, Evaluation, Experiment, Train, from_tensors, run
    from fedtide.algorithms.scaffold import Scaffold
    from fedtide.engines.kinds import AutoSettings
    from fedtide.population.participation import Uniform
    from fedtide.population.sessions import Fixed

    clients, rounds = 400_000, 116
    inputs, labels = torch.rand(clients, 64), torch.arange(clients) % 10
    seen: set[int] = set()
    resident: dict[int, float] = {}

    def watch(line: dict[str, object]) -> None:
        seen.update(line["clients"])  # type: ignore[call-overload]
        resident[int(line["t"])] = _resident()  # type: ignore[call-overload]

    run(
        Experiment(
            data=Data(name=from_tensors((inputs, labels), (inputs[:100], labels[:100]))),
            population=Fixed(clients=clients, rounds=rounds),
            participation=Uniform(clients=1000),
            algorithm=Scaffold(),
            train=Train(steps=1, batch_size=1),
            engine=AutoSettings(memory=memory),  # type: ignore[arg-type]
            evaluation=Evaluation(every=rounds),
        ),
        watch=watch,
    )
    return {
        "clients seen": len(seen),
        "MB of rows": len(seen) * 650 * 4 / 2**20,
        "MB after 12 rounds": resident[11],
        "MB at the end": resident[rounds - 1],
    }


def w10() -> Facts:
    """The MNIST experiment of the DIMC paper: four starts, 100 clients per group, 7 sessions of 50 rounds.

    Its authors report about 57 minutes of CPU time for one run.
    """
    from fedtide import run
    from fedtide.config import load

    folder = HERE.parent / "studies" / "papers" / "dimc"
    studies = (load(folder / name, seeds=[100]) for name in ("mnist.toml", "mnist-continuous.toml"))
    experiments = [one.experiment for study in studies for one in study.runs][:4]
    seconds = [_seconds(partial(run, each)) for each in experiments]
    return {
        "runs": len(seconds),
        "seconds, slowest run": max(seconds),
        "seconds, all": sum(seconds),
    }


def growth() -> Facts:
    """Resident memory after 200 rounds and after 2,000."""
    from fedtide import Data, Evaluation, Experiment, Train, run
    from fedtide.algorithms.scaffold import Scaffold
    from fedtide.models.dense import Mlp
    from fedtide.population.participation import Uniform
    from fedtide.population.sessions import Fixed

    resident: dict[int, float] = {}
    run(
        Experiment(
            data=Data(name="digits"),
            population=Fixed(clients=50, rounds=2000),
            participation=Uniform(clients=10),
            algorithm=Scaffold(),
            train=Train(model=Mlp(hidden=(64,)), steps=3),
            evaluation=Evaluation(every=50),
        ),
        watch=lambda line: resident.update({line["t"]: _resident()}),
    )
    return {"MB, round 200": resident[199], "MB, round 2,000": resident[1999]}


def _mnist() -> object:
    """MNIST, or random images of its size where it is not at hand."""
    import torch

    from fedtide import from_tensors
    from fedtide.data.source import Data

    if Data(name="mnist").is_here:
        return "mnist"
    numbers = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (70_000, 1, 28, 28), generator=numbers).to(torch.uint8)
    labels = torch.randint(10, (70_000,), generator=numbers)
    return from_tensors((pixels[:60_000], labels[:60_000]), (pixels[60_000:], labels[60_000:]))


def _resident() -> float:
    """Megabytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


EXPERIMENTS: dict[str, Callable[[], Facts]] = {
    "W7": w7,
    "W8": w8,
    "W9": w9,
    "W9 on disk": lambda: w9("disk"),
    "W10": w10,
    "growth": growth,
}
QUICK = ("W7", "W9", "W9 on disk")


def experiment(name: str) -> dict[str, float | str]:
    """What came of one of them, in a process of its own."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "src")])
    call = [sys.executable, str(HERE / "alone.py"), name]
    done = subprocess.run(
        call, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=False
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(EXPERIMENTS[sys.argv[1]]()))
