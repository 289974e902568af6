"""Study files may name classes of the user's own: kind = "file.py:Class"."""

import pytest

from fedtide import config, load, run_study
from fedtide.core.errors import ConfigError
from fedtide.engines.kinds import ENGINES

STUDY = """
[population]
kind = "fixed"
clients = 3
rounds = 2
[algorithm]
kind = "{kind}"
{more}
[train]
steps = 1
[compare]
seed = [1, 2]
"""
OWN = """
from dataclasses import dataclass
from fedtide.algorithms.base import Algorithm
from fedtide.algorithms.fedavg import FedAvg

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    strength: float = 1.0

class Other:
    pass

@dataclass(frozen=True, kw_only=True)
class Needy(FedAvg):
    strength: float

class Half(Algorithm):
    pass
"""

PROBE = """
from dataclasses import dataclass
from fedtide.measure.probes import Probe

@dataclass(frozen=True, kw_only=True)
class Norms(Probe):
    def measure(self, done):
        return {}
"""


def written(tmp_path, kind, more=""):
    folder = tmp_path / f"folder-{tmp_path.name}"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    (folder / "study.toml").write_text(STUDY.format(kind=kind, more=more))
    return folder / "study.toml"


def test_a_class_beside_the_study(tmp_path):
    study = load(written(tmp_path, "own.py:Mine", "strength = 2"))
    algorithm = study.cells[0].experiment.algorithm
    assert type(algorithm).__name__ == "Mine"
    assert algorithm.strength == 2.0


def test_other_processes_find_it_too(tmp_path):
    _, summary = run_study(load(written(tmp_path, "own.py:Mine")), tmp_path / "out", jobs=2)
    assert len(summary["cells"][0]["metrics"]["accuracy"]["values"]) == 2


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        ("other.py:Mine", "there is no file other.py. Check the path."),
        ("own.txt:Mine", "there is no file own.txt. Check the path."),
        ("own.py:Yours", "own.py has no such class. Check the name."),
        (
            "own.py:Other",
            "own.py has Other, which is no such class. Let it inherit from Algorithm.",
        ),
    ],
)
def test_mistakes(tmp_path, kind, got):
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, kind))
    assert str(caught.value) == (
        "algorithm must be a known kind or file.py:Class, a class of Algorithm in a file. "
        f"Got {kind!r}: {got}"
    )


def test_its_settings_are_checked(tmp_path):
    with pytest.raises(
        ConfigError, match=r"algorithm\.strenth: Mine has no such setting\. Did you"
    ):
        load(written(tmp_path, "own.py:Mine", "strenth = 2"))


def test_settings_without_a_default_must_be_given(tmp_path):
    path = written(tmp_path, "own.py:Needy")
    with pytest.raises(
        ConfigError, match=r"^algorithm\.strength must be set, because Needy has no"
    ):
        load(path)
    assert load(path, ["algorithm.strength=2"]).cells[0].experiment.algorithm.strength == 2.0


def test_methods_that_are_missing_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"'own.py:Half', which does not define \w+"):
        load(written(tmp_path, "own.py:Half"))


def test_an_own_probe_beside_known_ones(tmp_path):
    (tmp_path / "norms.py").write_text(PROBE)
    path = tmp_path / "study.toml"
    path.write_text(
        'train = { steps = 1 }\nevaluation = { probes = ["drift", "norms.py:Norms"] }\n'
    )
    drift, norms = load(path).cells[0].experiment.evaluation.probes
    assert (type(drift).__name__, type(norms).__name__) == ("DriftProbe", "Norms")


def test_the_engine_of_a_study_can_be_changed_by_its_name_alone(tmp_path, caplog):
    path = written(tmp_path, "fedavg", "[engine]\nkind = 'ray'\nactors = 3\nworkers = 2")
    study = load(path, ["engine.kind=loop"])
    assert study.cells[0].experiment.engine == ENGINES["loop"](workers=2)
    assert caplog.messages[-1].startswith("engine.actors is a setting of kind = 'ray'. Got kind =")


def test_a_dataset_named_as_a_kind_of_data_says_what_to_write():
    with pytest.raises(ConfigError) as caught:
        config.study("s", {"data": {"kind": "digits"}})
    said = "data: 'digits' is not known. It is a dataset: write data.name = 'digits'."
    assert str(caught.value) == said
