"""Rows on disk are the rows in memory, and take none of it."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.types import Nothing
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Fixed
from fedtide.training.memory import Memory, MemoryOnDisk
from tests.worlds import settings_of


def rows(values):
    """Two leaves of different types, as optimisers and algorithms have them."""
    v = torch.tensor(values, dtype=torch.float32)
    return {"vector": v[:, None].expand(-1, 3).clone(), "count": v.long()}


def test_it_holds_what_a_table_in_memory_holds():
    ram, disk, rng = Memory(), MemoryOnDisk(), np.random.default_rng(0)
    fresh = {"vector": torch.full((3,), -1.0), "count": torch.tensor(-1)}
    for t in range(40):
        cohort = rng.choice(300, size=11, replace=False)
        for memory in (ram, disk):
            memory.put(cohort, rows([1000 * t + int(c) for c in cohort]))
        asked = rng.choice(300, size=20, replace=False)
        mine, theirs = ram.take(asked, fresh), disk.take(asked, fresh)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert len(ram) == len(disk) > 200
    for a, b in zip(ram.kept()[1].values(), disk.kept()[1].values(), strict=True):
        assert torch.equal(a, b)


def test_it_forgets():
    disk = MemoryOnDisk()
    disk.put(np.array([4]), rows([7]))
    assert isinstance(disk.anew(), MemoryOnDisk)
    disk.clear()
    assert len(disk) == 0
    disk.put(np.array([5]), rows([8]))
    assert disk.take(np.array([5]), rows([0]))["count"].tolist() == [8]


def test_nothing_to_remember_makes_no_files():
    disk = MemoryOnDisk()
    disk.put(np.array([4]), Nothing())
    assert len(disk) == 0


def resident():
    """Megabytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def test_rows_of_former_cohorts_are_not_resident():
    """200 rows of 1 MB each, 10 at a time; a table in memory would hold them all."""
    disk, before = MemoryOnDisk(), resident()
    for t in range(20):
        disk.put(np.arange(10 * t, 10 * t + 10), {"v": torch.full((10, 1 << 18), float(t))})
    assert resident() - before < 100
    assert disk.take(np.array([3, 195]), {"v": torch.zeros(1 << 18)})["v"][:, 5].tolist() == [0, 19]


def test_only_rows_in_use_take_space():
    """The table is mapped with room for half as many rows again, and that costs nothing yet."""
    disk = MemoryOnDisk()
    for t in range(5):
        disk.put(np.arange(10 * t, 10 * t + 10), {"v": torch.full((10, 1 << 16), float(t))})
    used = 50 * 4 * (1 << 16)
    status = os.fstat(disk._files[0].fileno())
    assert status.st_size > used
    assert used <= 512 * status.st_blocks < 1.01 * used


FILLS = """
import numpy as np, torch
from fedtide.core.errors import EngineError
from fedtide.training.memory import MemoryOnDisk
disk = MemoryOnDisk()
try:
    for t in range(100):
        disk.put(np.arange(10 * t, 10 * t + 10), {"v": torch.full((10, 1 << 12), float(t))})
except EngineError as error:
    print(t, error)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB, where the system lets us have one."""
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if not mount or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not possible here")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def filled(folder, code):
    """What a process says that fills this temporary folder."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


ELSEWHERE = "import os; del os.posix_fallocate\n"  # as on macOS and Windows


@pytest.mark.parametrize("before", ["", ELSEWHERE], ids=["fallocate", "zeros"])
def test_a_full_temporary_folder_is_an_error(small_disk, before):
    done = filled(small_disk, before + FILLS)
    assert (done.returncode, done.stderr) == (0, "")  # not killed by SIGBUS
    assert re.match(rf"6 .* 163,840 more bytes in {small_disk}\. Got: No space left", done.stdout)
    assert "Set TMPDIR" in done.stdout


def test_an_archive_on_a_full_disk_is_an_error(small_disk):
    code = """
import torch
from fedtide.core.errors import EngineError
from fedtide.starts.archive import on_disk
try:
    kept = [on_disk(torch.ones(1 << 17)) for _ in range(3)]
except EngineError as error:
    print(error)
"""
    done = filled(small_disk, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"start.keep must have room for 524,288 more bytes in {small_disk}" in done.stdout


def test_files_that_may_not_grow_are_an_error(tmp_path):
    resource = pytest.importorskip("resource")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({10**6}, {10**6}))\n"
    assert resource
    done = filled(tmp_path, limit + FILLS)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"more bytes in {tmp_path}. Got: File too large" in done.stdout


def test_a_run_is_the_same_run():
    def ending(memory):
        experiment = Experiment(
            data=Data(name="digits"),
            population=Fixed(clients=30, rounds=6),
            participation=Uniform(clients=7),
            algorithm=Scaffold(),
            train=Train(steps=2),
            engine=settings_of(memory=memory),
        )
        return run(experiment).model.x

    assert torch.equal(ending("ram"), ending("disk"))
