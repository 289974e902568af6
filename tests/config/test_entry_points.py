"""Packages add kinds to study files by entry points: a package beside its metadata, as pip lays them."""

import json
import sys

import pytest

from fedtide import load, run_study
from fedtide.algorithms import ALGORITHMS
from fedtide.algorithms.fedavg import FedAvg
from fedtide.core.errors import ConfigError
from tests.cli.command import fedtide, fedtide_process

STUDY = """
algorithm = { kind = "calm", power = 0.5 }
start = "fresh"
[population]
kind = "fixed"
clients = 3
rounds = 2
[train]
steps = 1
[compare]
seed = [1, 2]
"""
CODE = """
from dataclasses import dataclass
from fedtide.algorithms.fedavg import FedAvg
from fedtide.starts.cold import Cold

@dataclass(frozen=True, kw_only=True)
class Calm(FedAvg):
    '''A method of another package.'''
    power: float = 1.0

@dataclass(frozen=True, kw_only=True)
class Fresh(Cold):
    '''A start of another package.'''
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    """An installed package with this name; returns how to install one."""
    site = tmp_path / "site"
    site.mkdir()

    def install(name, points, code=CODE):
        (site / f"{name}.py").write_text(code)
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        return site

    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    before = set(sys.modules)
    yield install
    for module in set(sys.modules) - before:
        if module.startswith("tide_"):
            del sys.modules[module]


POINTS = """
[fedtide.algorithms]
calm = tide_calm:Calm
[fedtide.starts]
fresh = tide_calm:Fresh
"""


def test_a_study_file_names_it(package, tmp_path):
    package("tide_calm", POINTS)
    (tmp_path / "study.toml").write_text(STUDY)
    study = load(tmp_path / "study.toml")
    experiment = study.cells[0].experiment
    assert type(experiment.algorithm).__name__ == "Calm"
    assert experiment.algorithm.power == 0.5
    assert type(experiment.start).__name__ == "Fresh"
    _, summary = run_study(study, tmp_path / "out", jobs=2)  # other processes find it too
    assert len(summary["cells"][0]["metrics"]["accuracy"]["values"]) == 2


def test_the_command_runs_and_lists_it(package, tmp_path):
    site = package("tide_calm", POINTS)
    (tmp_path / "study.toml").write_text(STUDY)
    path = ":".join([str(site), *filter(None, sys.path)])
    arguments = "run", "study.toml", "--json", "--jobs", 1
    done = fedtide_process(*arguments, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 4
    listed = fedtide("list", "algorithms", cwd=tmp_path).stdout
    assert "A method of another package." in listed
    assert "power = 1.0" in listed


def test_its_settings_are_checked_and_its_name_is_suggested(package, tmp_path):
    package("tide_calm", POINTS)
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("power", "pwer"))
    with pytest.raises(ConfigError, match=r"algorithm\.pwer: Calm has no such setting\. Did you"):
        load(path)
    path.write_text(STUDY.replace("fresh", "frsh"))
    with pytest.raises(ConfigError, match=r"start: 'frsh' is not known\. Did you mean 'fresh'\?"):
        load(path)


def test_a_package_cannot_replace_a_built_in_kind(package):
    package("tide_calm", "[fedtide.algorithms]\nfedavg = tide_calm:Calm\n")
    assert ALGORITHMS["fedavg"] is FedAvg
    assert list(ALGORITHMS) == list(ALGORITHMS.built_in)


@pytest.mark.parametrize(
    ("points", "code", "message"),
    [
        (
            "calm = tide_calm:Absent",
            CODE,
            "tide_calm:Absent, which fails to import: AttributeError",
        ),
        ("calm = tide_calm:Calm", "1 / 0", "which fails to import: ZeroDivisionError"),
        ("calm = tide_calm:Fresh", CODE, "Got tide_calm:Fresh. Correct or remove the package."),
    ],
)
def test_a_broken_package_is_named(package, tmp_path, points, code, message):
    package("tide_calm", f"[fedtide.algorithms]\n{points}\n", code)
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "study.toml")
    assert "fedtide.algorithms: 'calm' must be a class of Algorithm" in str(caught.value)
    assert message in str(caught.value)


def test_two_packages_of_one_kind(package, tmp_path):
    package("tide_calm", POINTS)
    package("tide_other", "[fedtide.algorithms]\ncalm = tide_other:Calm\n")
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(ConfigError, match=r"Got tide_calm:Calm and tide_other:Calm\. Remove one"):
        load(tmp_path / "study.toml")
