"""An engine of another package: named by an entry point, and the same as the loop bit for bit."""

import importlib

import pytest

from fedtide import load, run
from fedtide.engines.kinds import ENGINES
from tests.config.test_entry_points import package  # noqa: F401 (a fixture)
from tests.conformance.arena import COHORTS, RULES, World, assert_same, drive, outcome
from tests.conformance.table import TABLE

CODE = """
from dataclasses import dataclass

from fedtide.extend import Loop, LoopSettings


class CountingLoop(Loop):
    calls = 0

    def run(self, broadcast, ids, walk, weights=None):
        self.calls += len(ids)
        result = super().run(broadcast, ids, walk, weights)
        return result._replace(facts={**result.facts, "calls": self.calls})


@dataclass(frozen=True, kw_only=True)
class Counting(LoopSettings):
    '''One client after the other, counted.'''

    engine = CountingLoop
"""
POINTS = "[fedtide.engines]\ncounting = tide_counting:Counting\n"


@pytest.fixture
def counting(package):  # noqa: F811
    package("tide_counting", POINTS, CODE)
    importlib.invalidate_caches()


# State of server and clients, a survey, a teacher, a wrapper.
@pytest.mark.parametrize("name", TABLE)
def test_it_passes_the_conformance_table(counting, name):
    algorithm = TABLE[name].algorithm
    engine = World().engine("counting")
    assert_same(
        drive(engine, algorithm, RULES["carried"]), outcome(name, algorithm, "carried", "loop"), 0
    )
    assert engine.calls == sum(map(len, COHORTS))


def test_a_study_file_names_it(counting, tmp_path):
    (tmp_path / "study.toml").write_text(
        "[population]\nkind = 'fixed'\nclients = 3\nrounds = 2\n[train]\nsteps = 1\n"
        "[engine]\nkind = 'counting'\nworkers = 1\n"
    )
    experiment = load(tmp_path / "study.toml").cells[0].experiment
    history = run(experiment)
    assert [line["calls"] for line in history.rounds] == [3, 6]
    assert history.engine == "countingloop: as the study asks"
    assert "counting" in ENGINES
