"""What does Ray cost on one machine? Throughput, overhead of a round, and the memory of the server.

Engines take turns, round by round in one process, so that a busy machine is busy for all of them; ratios are
taken within one run of this script. Memory is that of the server's process alone (RssAnon), sampled while it
works: examples, models and uploads, without the object store, which all processes share.

    .venv/bin/python benchmarks/cluster.py
"""

import statistics
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import numpy as np
import torch

from fedtide.algorithms.base import Algorithm, Context
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.types import Cohort, Examples
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.engines.base import Engine
from fedtide.engines.kinds import ENGINES, RaySettings, shared
from fedtide.engines.malloc import keep_freed_memory
from fedtide.tasks.task import Task
from fedtide.training.messages import Broadcast
from fedtide.training.optimisers import Sgd
from fedtide.training.train import Train
from models import build

ACTORS = 2


class Run:
    """Rounds of one engine, one after the other, with a server between them."""

    def __init__(self, engine: Engine, algorithm: Algorithm) -> None:
        self.engine, self.algorithm = engine, algorithm
        self.population = engine.data.holdings.clients
        x, self.buffers = engine.task.initial
        self.server = algorithm.init(x, Context(engine.task.layout, self.population))
        self.t = 0

    def round(self, ids: np.ndarray) -> float:
        """Seconds of a round: local training and aggregation."""
        engine, t = self.engine, self.t
        sizes = engine.data.holdings.sizes(t, ids)
        share = torch.from_numpy(sizes / sizes.sum()).float()
        begin = time.perf_counter()
        down = self.algorithm.broadcast(self.server)
        steps = engine.data.steps(t, ids)
        broadcast = Broadcast(self.algorithm, Sgd(), 0.01, down, self.buffers, t)
        result = engine.run(broadcast, ids, broadcast.walk(steps, np.full(len(ids), t)))
        engine.keep(result, ids)
        cohort = Cohort(torch.from_numpy(ids), share, result.walk, self.population, t)
        self.server = result.aggregated(self.algorithm, self.server, cohort)
        self.t += 1
        return time.perf_counter() - begin


def data(clients: int, each: int, shape: tuple[int, ...], **batching: int) -> ClientData:
    """Made-up examples; clients beyond the first 10,000 examples' worth share them."""
    numbers = torch.Generator().manual_seed(0)
    count = min(clients * each, 10_000)
    inputs = torch.rand(count, *shape, generator=numbers)
    examples = Examples(inputs, torch.randint(10, (count,), generator=numbers))
    order = np.arange(clients * each) % count
    holdings = Static(order, np.arange(0, clients * each + 1, each))
    return ClientData(examples, holdings, Batching(**batching), 0)


def engine(kind: str, model: str, clients: ClientData, **settings: object) -> Engine:
    torch.manual_seed(0)
    choice = ENGINES[kind](device="cpu", **settings)
    return choice.build(Task(build(model)), clients, Train(epochs=1), FedAvg())


def in_turns(runs: dict[str, Run], cohort: int, rounds: int) -> dict[str, float]:
    """Median milliseconds per round."""
    ids = np.arange(cohort)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for t in range(rounds + 2):
        for name, run in runs.items():
            spent = run.round(ids)
            if t >= 2:  # the first ones settle the actors and warm up
                seconds[name].append(spent)
    for run in runs.values():
        run.engine.close()
    return {name: 1000 * statistics.median(each) for name, each in seconds.items()}


def throughput() -> None:
    """Of the engines in this process the loop is the best for convolutions on a CPU; `auto` takes it."""
    clients = data(10, 320, (3, 32, 32), batch_size=64, steps=5)
    kinds = {
        "loop, 2 threads": engine("loop", "cnn32", clients),
        "ray, 2 actors of loop": engine("ray", "cnn32", clients, of="loop", actors=ACTORS),
    }
    found = in_turns({name: Run(each, FedAvg()) for name, each in kinds.items()}, 10, rounds=9)
    best = found["loop, 2 threads"]
    print("\nThroughput: CNN 32x32x3, 10 clients x 5 steps of 64")
    for name, ms in found.items():
        print(f"  {name:<24} {ms:>9.1f} ms/round   {best / ms:.2f} of the loop in this process")


def overhead() -> None:
    clients = data(10, 100, (784,), batch_size=32, steps=2)
    print("\nOverhead: 784-10 linear, 10 clients x 2 steps of 32")
    for algorithm in (FedAvg(), Scaffold()):
        kinds = {
            "vectorised": engine("vectorised", "linear", clients, workers=1),
            "ray": engine("ray", "linear", clients, of="vectorised", actors=ACTORS),
        }
        found = in_turns({name: Run(each, algorithm) for name, each in kinds.items()}, 10, 60)
        more = found["ray"] - found["vectorised"]
        print(
            f"  {type(algorithm).__name__:<9} in this process {found['vectorised']:>6.2f} ms/round, "
            f"in 2 actors {found['ray']:>6.2f}: {more:.1f} ms more"
        )


class Gauge:
    """The largest anonymous memory of this process while it is watched, in MB above the beginning."""

    def __enter__(self) -> "Gauge":
        self.begin = self.most = resident()
        self._done = Event()
        self._thread = Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *problem: object) -> None:
        self._done.set()
        self._thread.join()
        self.end = resident()

    @property
    def rise(self) -> float:
        return max(self.most, self.end) - self.begin


def resident() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def memories() -> None:
    """SCAFFOLD: every client that takes part leaves a control variate; rounds bring new clients."""
    print("\nMemory of the server: SCAFFOLD, MLP (0.8 MB), 20 new clients a round")
    print(f"  {'clients seen':>12} {'vectorised':>14} {'ray':>14}")
    for rounds in (5, 50):
        rises = []
        for kind in ("vectorised", "ray"):
            clients = data(20 * (rounds + 2), 4, (784,), batch_size=4, steps=1)
            settings = {"of": "vectorised", "actors": ACTORS} if kind == "ray" else {}
            run = Run(engine(kind, "mlp", clients, **settings), Scaffold())
            with closing(run.engine):
                for t in range(2):
                    run.round(np.arange(20 * t, 20 * t + 20))
                with Gauge() as gauge:
                    for t in range(2, rounds + 2):
                        run.round(np.arange(20 * t, 20 * t + 20))
            rises.append(gauge.rise)
        print(f"  {20 * rounds:>12,} {rises[0]:>11.0f} MB {rises[1]:>11.0f} MB")


def cohorts() -> None:
    """FedAvg with growing cohorts: what the server holds of their uploads."""
    print("\nMemory of the server: FedAvg, MLP (0.8 MB), by the size of the cohort")
    print(f"  {'cohort':>8} {'uploads':>10} {'stacked':>10} {'sums':>10}")
    for cohort in (10, 100, 1000):
        rises = []
        for uploads in ("stacked", "sums"):
            clients = data(1000, 4, (784,), batch_size=4, steps=1)
            settings = {"of": "vectorised", "actors": ACTORS, "uploads": uploads}
            run = Run(engine("ray", "mlp", clients, **settings), FedAvg())
            with closing(run.engine):
                run.round(np.arange(2))
                with Gauge() as gauge:
                    for _ in range(3):
                        run.round(np.arange(cohort))
            rises.append(gauge.rise)
        size = cohort * run.engine.task.initial.x.nbytes / 2**20
        print(f"  {cohort:>8,} {size:>7.0f} MB {rises[0]:>7.0f} MB {rises[1]:>7.0f} MB")


def main() -> None:
    torch.set_num_threads(1)
    with shared([RaySettings(actors=ACTORS)]):
        memories()
        cohorts()
        keep_freed_memory()  # as every run does; it would blur what the server needs
        throughput()
        overhead()


if __name__ == "__main__":
    main()
