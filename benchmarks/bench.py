"""FedTide beside its peers, doing the same local work on the same arrays; the table of docs/performance.md.

    make bench                    everything: sets up .bench/ first, then about ten minutes
    python benchmarks/bench.py --quick            two minutes, noisier
    python benchmarks/bench.py W1 W2 --only fedtide,fedjax

Drivers of one workload are loaded together and take turns. Results go to .bench/results.json and results.md.
"""

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alone import EXPERIMENTS, QUICK, experiment
from environments import PEERS, PLACE, compile_ours, prepare, python_of
from limits import least_seconds, measured
from workloads import WORKLOADS

HERE = Path(__file__).resolve().parent
ROUNDS = {
    "W1": 3,
    "W2": 20,
    "W3": 6,
    "W4": 1,
    "W5": 1,
}  # in a row, so that every turn takes a while
TURNS, QUICK_TURNS = 5, 2
BEGIN, END = "<!-- table -->", "<!-- end -->"  # around the table of a page
OURS = {"fedtide": "with_fedtide", "by hand": "by_hand"}


class Driver:
    """One framework with one workload, in a process of its own."""

    def __init__(self, name: str, workload: str) -> None:
        python = python_of(name if name in PEERS else "fedtide")
        script = HERE / "drivers" / f"{OURS.get(name, f'with_{name}')}.py"
        paths = [str(HERE), str(HERE.parent / "src")]
        self.log = PLACE / f"{name.replace(' ', '-')}-{workload}.log"
        self.process = subprocess.Popen(
            [python, script, workload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self.seconds: list[float] = []

    def answer(self) -> list[float]:
        """What the driver measured in its last turn; nothing more comes from one that has failed."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((self.log.read_text().strip() or "it stopped").splitlines()[-1])
        found: list[float] = json.loads(line)
        return found

    def turn(self, rounds: int) -> list[float]:
        assert self.process.stdin
        self.process.stdin.write(f"{rounds}\n")
        self.process.stdin.flush()
        return self.answer()

    def megabytes(self) -> float:
        """Peak memory of the process and all that it started."""
        return sum(_peak(pid) for pid in _family(self.process.pid)) / 1024

    def close(self) -> None:
        family = list(_family(self.process.pid))
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for pid in family[1:]:  # Ray leaves some behind
            subprocess.run(["kill", "-9", str(pid)], capture_output=True, check=False)


def compared(workload: str, names: Sequence[str], turns: int) -> dict[str, Any]:
    """Median seconds per round and peak memory of each, or why there is none."""
    drivers, found = {}, {}
    for name in names:  # one after the other: loading is not measured
        driver = Driver(name, workload)
        try:
            driver.answer()
            driver.turn(2)  # warm-up; JAX compiles here
            drivers[name] = driver
        except (RuntimeError, OSError) as error:
            found[name] = {"failed": str(error)}
            driver.close()
    for _ in range(turns):
        for driver in drivers.values():
            driver.seconds += driver.turn(ROUNDS[workload])
    for name, driver in drivers.items():
        found[name] = {
            "seconds": statistics.median(driver.seconds),
            "spread": statistics.quantiles(driver.seconds, n=4)[::2],
            "megabytes": driver.megabytes(),
        }
        driver.close()
    return found


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # gone meanwhile
            continue
        for child in children:
            yield from _family(int(child))


def _peak(pid: int) -> int:
    """Kilobytes that a process held at most."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def table(results: dict[str, Any]) -> str:
    """The results in words that Markdown understands."""
    machine = results["machine"]
    lines = [
        f"Machine: {os.cpu_count()} cores, {machine['gflops']:.0f} GFLOP/s, "
        f"{machine['gigabytes']:.0f} GB/s. Medians over {results['turns']} turns.",
        "",
        "| workload | framework | ms per round | times FedTide | times the limit | peak MB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for workload, found in results["workloads"].items():
        limit = least_seconds(WORKLOADS[workload], machine)
        own = found.get("fedtide", {}).get("seconds")
        for name, one in found.items():
            if "failed" in one:
                lines.append(f"| {workload} | {name} | {one['failed']} | | | |")
                continue
            ratio = f"{one['seconds'] / own:.2f}" if own else ""
            lines.append(
                f"| {workload} | {name} | {1000 * one['seconds']:.1f} | {ratio} "
                f"| {one['seconds'] / limit:.1f} | {one['megabytes']:.0f} |"
            )
    lines += ["", "| experiment | measured |", "|---|---|"]
    for name, facts in results["experiments"].items():
        said = ", ".join(f"{key} {value:,.4g}" for key, value in facts.items() if key != "failed")
        lines.append(f"| {name} | {said or facts['failed']} |")
    return "\n".join(lines) + "\n"


def replaced(page: Path, text: str) -> None:
    """Put the table between the two marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description="FedTide beside its peers.")
    parser.add_argument(
        "workloads", nargs="*", help="W1 ... W5, W7 ... W10, memory; all by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions, no long experiments"
    )
    parser.add_argument("--only", default="", help="frameworks, separated by commas")
    parser.add_argument("--page", type=Path, help="a page whose table is replaced")
    asked = parser.parse_args()
    PLACE.mkdir(exist_ok=True)
    only = [name for name in asked.only.split(",") if name]
    names = list(OURS)
    if why := prepare("fedtide"):
        parser.exit(1, f"fedtide: {why}\n")
    compile_ours()
    missing = {}
    for peer in only or PEERS:
        if peer in PEERS:
            missing[peer] = prepare(peer)
            names += [peer] if not missing[peer] else []
            print(f"{peer}: {missing[peer] or 'ready'}", flush=True)
    wanted = asked.workloads or [*WORKLOADS, *EXPERIMENTS]
    names = [name for name in names if not only or name in only or name == "fedtide"]
    turns = QUICK_TURNS if asked.quick else TURNS
    results: dict[str, Any] = {"turns": turns, "machine": measured(), "workloads": {}}
    results["experiments"] = {}
    for name in wanted:
        print(f"{name} ...", flush=True)
        if name in WORKLOADS:
            results["workloads"][name] = compared(name, names, turns)
        elif not asked.quick or name in QUICK:
            results["experiments"][name] = experiment(name)
    results["missing"] = {peer: why for peer, why in missing.items() if why}
    text = table(results)
    (PLACE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (PLACE / "results.md").write_text(text)
    if asked.page:
        replaced(asked.page, text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
