"""Hostile input: mutated studies and data files give results or a FedTide error, never a traceback."""

import os
import signal
from contextlib import contextmanager

from hostile import files
from hypothesis import HealthCheck, given, settings

from fedtide import config
from fedtide.core.errors import FedTideError
from fedtide.experiment import run
from fedtide.record.checkpoint import Checkpoints, Stopped

COUNT = int(os.environ.get("FEDTIDE_FUZZ", "40"))  # examples of each sort
BOUNDED = settings(
    max_examples=COUNT,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def within(seconds):
    """Fail instead of hanging."""

    def ring(number, frame):
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@BOUNDED
@given(text=files())
def test_mutated_studies(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "hostile"
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    with within(60):
        try:
            cell = config.load(folder / "study.toml").cells[0]
            run(cell.experiment, checkpoints=Checkpoints(stop=lambda: True))
        except (FedTideError, Stopped):
            pass
    assert [path.name for path in folder.iterdir()] == ["study.toml"]
