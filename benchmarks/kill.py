"""Kill a study at random moments and resume it: is everything as in an undisturbed run, bit for bit?

    python benchmarks/kill.py --kills 30

The study has a state wherever a state can be: SCAFFOLD's clients and server remember, FAST adapts, DIMC
keeps an archive, stores are first in, first out, and batteries run down over a wireless network. A
checkpoint follows every third round, so that kills hit one while it is written. A child of this process
runs the study and gets SIGKILL at a random moment; the next child goes on with --resume. When a study comes
to its end it is compared and begun again, until all kills are done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import torch

from fedtide import config
from fedtide.record.folder import StudyFolder
from fedtide.record.journal import read
from fedtide.run.execute import run_study

STUDY = """
[data]
partition = { kind = "dirichlet", alpha = 0.5 }
stores = { kind = "fifo", capacity = [40, 80], slots = 8 }
[population]
kind = "alternating"
clients = 6
sessions = 5
rounds = 24
[participation]
kind = "fast"
adaptive = true
clients = 3
of = { kind = "markov", rate = 0.6 }
[network]
kind = "wireless"
fleet = { battery_joules = 0.002, charging_watts = 1e-5 }
pause_seconds = 10.0
[start]
kind = "similarity"
[train]
model = { kind = "mlp", hidden = [64] }
steps = 4
[checkpoint]
rounds = 3
[compare]
algorithm = ["scaffold"]
"""


def child(plan: config.Study, out: Path) -> int:
    """Start the study, or go on with it, in a child process; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            run_study(plan, out, jobs=1, resume=True)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
    return pid


def ended(pid: int, seconds: float) -> bool:
    """Wait so long for a child, then kill it; did it end by itself?"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the study failed"
            return True
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0  # it may just have ended


def results(folder: Path) -> dict[str, object]:
    """Every model as bytes, every journal without wall times, the names of all files."""
    found: dict[str, object] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        found[name] = None
        if path.suffix == ".safetensors":
            found[name] = path.read_bytes()
        if path.suffix == ".jsonl":
            found[name] = json.dumps([{**line, "seconds": 0} for line in read(path)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    torch.set_num_threads(
        1
    )  # a forked child has none of its parent's threads, and would wait for them
    rng = random.Random(asked.seed)
    folder = Path(tempfile.mkdtemp(prefix="fedtide-kill-"))
    (folder / "kill.toml").write_text(STUDY)
    plan = config.load(folder / "kill.toml")

    for out in ("warm", "calm"):  # what is imported and compiled now, children need not
        begin = time.monotonic()
        run_study(plan, folder / out, jobs=1)
        seconds = time.monotonic() - begin
    expected = results(StudyFolder.newest(folder / "calm" / "kill").path)
    print(f"undisturbed: {seconds:.1f} s, {len(expected)} files, seed {asked.seed}", flush=True)

    kills = studies = amid = 0
    out = folder / "rough"
    while True:
        moment = rng.uniform(0, seconds / 2) if kills < asked.kills else 3600
        if not ended(child(plan, out), moment):
            kills += 1
            left = list(out.rglob(".*.tmp"))
            amid += bool(left)
            journals = list(out.rglob("journal.jsonl"))
            rounds = sum(path.read_bytes().count(b"\n") for path in journals)
            word = ", while a file was written" if left else ""
            print(f"kill {kills}: after {moment:.3f} s, at round {rounds}{word}", flush=True)
            continue
        studies += 1
        assert results(StudyFolder.newest(out / "kill").path) == expected, "not the same"
        shutil.rmtree(out)
        if kills >= asked.kills:
            break
    shutil.rmtree(folder)
    print(f"{kills} kills ({amid} while a file was written), {studies} studies: all bit-identical")


if __name__ == "__main__":
    main()
