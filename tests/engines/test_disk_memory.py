"""Rows on disk are the rows in memory, and take none of it."""

import numpy as np
import pytest
import torch

from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.scaffold import Scaffold
from fedtide.core.errors import ConfigError
from fedtide.core.types import Nothing
from fedtide.engines.choose import EngineChoice
from fedtide.engines.memory import Memory, OnDisk
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Fixed


def rows(values):
    """Two leaves of different types, as optimisers and algorithms have them."""
    v = torch.tensor(values, dtype=torch.float32)
    return {"vector": v[:, None].expand(-1, 3).clone(), "count": v.long()}


def test_it_holds_what_a_table_in_memory_holds():
    ram, disk, rng = Memory(), OnDisk(), np.random.default_rng(0)
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
    disk = OnDisk()
    disk.put(np.array([4]), rows([7]))
    assert isinstance(disk.anew(), OnDisk)
    disk.clear()
    assert len(disk) == 0
    disk.put(np.array([5]), rows([8]))
    assert disk.take(np.array([5]), rows([0]))["count"].tolist() == [8]


def test_nothing_to_remember_makes_no_files():
    disk = OnDisk()
    disk.put(np.array([4]), Nothing())
    assert len(disk) == 0


def resident():
    """Megabytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def test_rows_of_former_cohorts_are_not_resident():
    """200 rows of 1 MB each, 10 at a time; a table in memory would hold them all."""
    disk, before = OnDisk(), resident()
    for t in range(20):
        disk.put(np.arange(10 * t, 10 * t + 10), {"v": torch.full((10, 1 << 18), float(t))})
    assert resident() - before < 100
    assert disk.take(np.array([3, 195]), {"v": torch.zeros(1 << 18)})["v"][:, 5].tolist() == [0, 19]


def test_a_run_is_the_same_run():
    def ending(memory):
        experiment = Experiment(
            data=Data(name="digits"),
            population=Fixed(clients=30, rounds=6),
            participation=Uniform(clients=7),
            algorithm=Scaffold(),
            train=Train(steps=2),
            engine=EngineChoice(memory=memory),
        )
        return run(experiment).model.x

    assert torch.equal(ending("ram"), ending("disk"))


def test_ray_keeps_its_rows_with_its_actors():
    with pytest.raises(ConfigError, match=r"engine.memory must be 'ram' with kind = 'ray'"):
        EngineChoice(kind="ray", memory="disk")
