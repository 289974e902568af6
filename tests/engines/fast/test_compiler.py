"""Compiling: announced once for an installation, and by one process at a time."""

from importlib.util import module_from_spec, spec_from_file_location
from threading import Thread
from types import SimpleNamespace

import pytest

pytest.importorskip("numba")

from fedtide.engines.fast.compiler import _alone, compiling

KERNEL = """
from fedtide.engines.fast.compiler import compiled

@compiled
def twice(x):
    return 2 * x
"""


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """The kernel of a file, as a process that has just started imports it; numba caches beside the file."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    file = tmp_path / "doubles.py"
    file.write_text(KERNEL)

    def load():
        spec = spec_from_file_location("doubles", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice

    return load


def test_only_the_first_compilation_is_announced(fresh, caplog):
    for _ in range(2):
        kernel = fresh()
        with compiling(kernel):
            assert kernel(4) == 8
    (record,) = caplog.records
    assert record.getMessage() == (
        "Compiling for this processor: about ten seconds, once for an installation."
    )


def test_code_that_cannot_be_kept_is_announced_with_a_way_out(fresh, caplog, monkeypatch):
    kernel = fresh()
    monkeypatch.setattr(type(kernel), "stats", SimpleNamespace(cache_path=None))
    with compiling(kernel):
        pass
    assert "let NUMBA_CACHE_DIR name a folder" in caplog.text


def test_one_process_compiles_at_a_time(tmp_path):
    """The others wait: numba's cache confuses the code of two processes that write at once."""
    entered = []

    def other():
        with _alone(str(tmp_path)):
            entered.append(True)

    waiting = Thread(target=other)
    with _alone(str(tmp_path)):
        waiting.start()
        waiting.join(0.5)
        assert not entered
    waiting.join()
    assert entered
