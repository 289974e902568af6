"""Reading a trace of a million visits beside pyarrow's own reader.

python benchmarks/visits.py            a million visits of 100,000 named clients, with dates

Both read the same file in turns; printed are median seconds, their ratio and peak memory of the process.
"""

import resource
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from pyarrow import csv

from fedtide.population import recording
from fedtide.population.arrivals import VisitTrace

VISITS, CLIENTS, TURNS = 1_000_000, 100_000, 5


def write(path: Path) -> None:
    """Visits in the order of their arrival over a month."""
    numbers = np.random.default_rng(0)
    client = numbers.integers(CLIENTS, size=VISITS)
    begin = np.sort(numbers.integers(30 * 86400, size=VISITS))
    end = begin + numbers.integers(60, 4 * 3600, size=VISITS)
    zero = datetime(2026, 3, 2, tzinfo=UTC)
    with path.open("w") as file:
        file.write("client,arrive,leave\n")
        for who, *times in zip(client.tolist(), begin.tolist(), end.tolist(), strict=True):
            dates = (f"{zero + timedelta(seconds=t):%Y-%m-%d %H:%M:%S}" for t in times)
            file.write(f"phone-{who:05d},{','.join(dates)}\n")


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "visits.csv"
    write(path)
    ours, theirs = [], []
    for _ in range(TURNS):
        theirs.append(seconds(lambda: csv.read_csv(path)))
        recording._recording.cache_clear()
        ours.append(seconds(lambda: VisitTrace(file=str(path), round_minutes=10, rounds=100)))
    plain, full = statistics.median(theirs), statistics.median(ours)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"pyarrow {plain:.3f} s, FedTide {full:.3f} s, ratio {full / plain:.1f}, {peak:.0f} MB")
