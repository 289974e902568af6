"""An environment for everybody, under .bench/; a peer that does not install is left out, and says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".bench"
TORCH = ("torch==2.13.0",)  # alone and first: the pinned version decides which build is taken

# Packages in steps; "--no-deps" where a peer asks for more than a simulation needs.
PEERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fedjax": (("fedjax==0.0.17", "setuptools<81"),),
    "pfl": (TORCH, ("pfl==0.6.0", "numpy<3")),
    "flwr": (TORCH, ("flwr[simulation]==1.41.0", "numpy")),
    "fedlab": (
        TORCH,
        ("--no-deps", "fedlab==1.3.0"),
        ("numpy", "pandas", "scikit-learn", "tqdm", "munch", "pynvml", "networkx"),
    ),
    "flgo": (
        TORCH,
        ("--no-deps", "flgo==0.4.4"),
        ("numpy", "matplotlib", "networkx", "prettytable", "pyyaml", "requests", "tqdm"),
    ),
}
OURS = (TORCH, ("-c", "constraints.txt", ".[fast]"))  # as a user has it, without what tests need


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment."""
    return PLACE / peer / "bin" / "python"


def prepare(peer: str) -> str:
    """Set the environment up unless it is there; returns why it could not be, or nothing."""
    record = PLACE / f"{peer}.json"
    steps = OURS if peer == "fedtide" else PEERS[peer]
    wanted = json.dumps(steps)
    if record.exists() and record.read_text() == wanted:
        return ""
    subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE / peer], check=True)
    for packages in steps:
        call = [python_of(peer), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        done = subprocess.run(
            [*call, *packages], capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            return f"pip install {' '.join(packages)}: {''.join(last)}"
    record.write_text(wanted)
    return ""


def compile_ours() -> None:
    """Compile FedTide's kernels, as is done once for an installation: no round should pay for it."""
    call = "import torch; from fedtide.engines.fast.kernels import prepare; prepare(torch.float32)"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([python_of("fedtide"), "-c", call], check=True, env=env)


def main() -> None:
    """Set up everybody."""
    for peer in sys.argv[1:] or ["fedtide", *PEERS]:
        print(f"{peer}: {prepare(peer) or 'ready'}", flush=True)


if __name__ == "__main__":
    main()
