"""How fast this machine multiplies and moves memory: no round can be faster than its work over these."""

import time
from collections.abc import Callable

import torch
from workloads import Workload


def measured() -> dict[str, float]:
    """GFLOP/s of a large product and GB/s of a large copy, all cores, the best of several tries."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    source, target = torch.empty(1 << 26), torch.empty(1 << 26)
    product = _best(lambda: torch.mm(a, b))
    copy = _best(lambda: target.copy_(source))
    return {"gflops": 2 * 2048**3 / product / 1e9, "gigabytes": 2 * source.nbytes / copy / 1e9}


def least_seconds(work: Workload, machine: dict[str, float]) -> float:
    """The larger of a round's arithmetic and its memory traffic."""
    flops = work.flops * work.cohort * work.held
    return max(flops / machine["gflops"], work.bytes_moved / machine["gigabytes"]) / 1e9


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(8):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
