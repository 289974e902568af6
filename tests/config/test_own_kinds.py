"""Study files may name classes of the user's own: kind = "file.py:Class"."""

import pytest

from fedtide import load, run_study
from fedtide.core.errors import ConfigError

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
from fedtide.algorithms.fedavg import FedAvg

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    strength: float = 1.0

class Other:
    pass
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
        ("own.py:Other", "own.py has no such class. Check the name."),
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


def test_a_section_with_a_kind_of_its_own(tmp_path):
    """[engine] has a field `kind`: it must not get lost as the name of a class does."""
    study = load(written(tmp_path, "fedavg"), ["engine.kind=loop"])
    assert study.cells[0].experiment.engine.kind == "loop"
