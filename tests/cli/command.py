"""The command `fedtide` as tests run it, and a small study."""

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from fedtide.cli import main

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
    """Run the command in this process, in the folder `cwd`: nothing has to be imported again.

    pytest makes errors of warnings; streams, exit code and environment are those of `fedtide_process`.
    """
    words, out, err = list(map(str, arguments)), io.StringIO(), io.StringIO()
    with (
        chdir(cwd),
        patch.dict(os.environ, _environment(environment), clear=True),
        patch.object(sys, "argv", ["fedtide", *words]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())


def fedtide_process(*arguments, cwd, **environment):
    """Run the command in a process of its own, in the folder `cwd`, with warnings as errors."""
    code = "from fedtide.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )


def _environment(more):
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {"PATH": "", "COLUMNS": "120", "HF_HUB_OFFLINE": "1", **kept, **more}
