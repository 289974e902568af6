"""The command `fedtide` as tests run it, and a small study."""

import os
import subprocess
import sys

SMALL = """
[data]
name = "digits"
[population]
kind = "fixed"
clients = 4
rounds = 2
[train]
steps = 2
"""


def fedtide(*arguments, cwd, **environment):
    """Run the command in a process of its own, in the folder `cwd`, with warnings as errors."""
    code = "from fedtide.cli import main; main()"
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={"PATH": "", "COLUMNS": "120", "HF_HUB_OFFLINE": "1", **kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
