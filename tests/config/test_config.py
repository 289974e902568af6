"""Study files: what they become, and what they say when they are wrong."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from fedtide import config
from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.server import ServerAdam, ServerMomentum
from fedtide.core.errors import ConfigError
from fedtide.core.kinds import Kinds
from fedtide.data.partition import Dirichlet, Iid
from fedtide.models.dense import Mlp
from fedtide.population.sessions import Alternating, Pattern
from fedtide.run.kinds import KINDS
from fedtide.starts.trigger import Always
from fedtide.training.optimisers import Sgd
from fedtide.training.schedules import Poly
from tests.worlds import study_files

BASE = {"train": {"steps": 5}}
STUDIES = study_files(Path("studies"))


def experiment(**sections):
    return config.study("test", {**BASE, **sections}).cells[0].experiment


def test_sections_become_objects():
    e = experiment(
        data={"name": "digits", "partition": {"kind": "dirichlet", "alpha": 1}},
        population={"kind": "alternating", "clients": 3, "labels_overlap": 0.2},
        algorithm={"kind": "fedprox", "mu": 0.5, "server": {"kind": "momentum", "beta": 0.7}},
        train={
            "model": {"kind": "mlp", "hidden": [8, 4]},
            "epochs": 2,
            "optimiser": {"kind": "sgd", "momentum": 0.9},
            "schedule": "poly",
        },
    )
    assert e.data.partition == Dirichlet(alpha=1.0)
    assert e.population == Alternating(clients=3, labels_overlap=0.2)
    assert e.algorithm == FedProx(mu=0.5, server=ServerMomentum(beta=0.7))
    assert e.train.model == Mlp(hidden=(8, 4))
    assert e.train.optimiser == Sgd(momentum=0.9)
    assert e.train.schedule == Poly()


def test_a_word_is_short_for_a_kind():
    e = experiment(data={"partition": "iid"}, algorithm={"kind": "fedavg", "server": "adam"})
    assert e.data.partition == Iid()
    assert e.algorithm.server == ServerAdam()


def test_settings_without_a_kind_are_for_every_kind_of_the_grid():
    starts = ["previous", {"kind": "soup", "margin": 3.0}, "cold"]
    study = config.study(
        "s", {**BASE, "start": {"trigger": "always"}, "compare": {"start": starts}}
    )
    assert [type(cell.experiment.start.trigger) for cell in study.cells] == [Always] * 3
    assert study.cells[1].experiment.start.margin == 3
    named = {
        **BASE,
        "start": {"kind": "soup", "margin": 3.0},
        "compare": {"start": ["previous", "soup"]},
    }
    assert (
        config.study("s", named).cells[1].experiment.start.margin != 3
    )  # another kind: nothing is kept


def test_lambda_is_written_as_in_the_paper():
    assert experiment(algorithm={"kind": "fedacg", "lambda": 0.5}).algorithm == FedACG(lambda_=0.5)


def test_lists_of_lists():
    sessions = [[0, 1], [2]]
    e = experiment(population={"kind": "pattern", "clients": 3, "sessions": sessions})
    assert e.population == Pattern(clients=3, sessions=((0, 1), (2,)))


def test_the_grid_is_the_product_of_cases_and_comparisons():
    study = config.study(
        "grid",
        {
            **BASE,
            "algorithm": {"kind": "fedprox", "mu": 1.0},
            "compare": {
                "algorithm": {"mu": [0.1, 0.2]},
                "start": ["cold", "previous"],
                "seed": [1, 2],
            },
            "case": [
                {"name": "slow", "train": {"lr": 0.01}},
                {"name": "fast", "train": {"lr": 1.0}, "algorithm": {"kind": "fedprox"}},
            ],
        },
    )
    assert study.seeds == (1, 2)
    assert len(study.cells) == 8
    assert len(study.runs) == 16
    first = study.cells[0]
    assert first.settings == {"case": "slow", "algorithm.mu": 0.1, "start": "cold"}
    assert first.experiment.train.lr == 0.01
    assert first.experiment.train.steps == 5  # merged with the base, not replaced
    assert study.cells[-1].experiment.train.lr == 1.0
    assert study.cells[-1].experiment.algorithm == FedProx(mu=0.2)


def test_cells_do_not_share_changes():
    study = config.study(
        "s", {**BASE, "compare": {"train.lr": [0.1, 0.2], "train.batch_size": [1, 2]}}
    )
    pairs = [(c.experiment.train.lr, c.experiment.train.batch_size) for c in study.cells]
    assert pairs == [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]


def test_set_and_seed_change_a_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('algorithm = "fedprox"\n[train]\nsteps = 3\n')
    study = config.load(path, ["algorithm.mu=0.3", "train.sampling=replacement"], [7, 8])
    assert study.name == "own"
    assert study.seeds == (7, 8)
    assert study.cells[0].experiment.algorithm == FedProx(mu=0.3)
    assert study.cells[0].experiment.train.sampling == "replacement"
    assert "# --set algorithm.mu=0.3" in study.source


WRONG = [
    (
        {"algorithm": {"kind": "fedprox", "muu": 1}},
        "algorithm.muu: FedProx has no such setting. Did you mean 'mu'?",
    ),
    ({"algorithm": "fedprx"}, "algorithm: 'fedprx' is not known. Did you mean 'fedprox'?"),
    ({"algorithm": {"mu": 1}}, "algorithm: it has no kind. Choose from: "),
    ({"algorithm": 3}, "algorithm must be a table. Got 3."),
    ({"trian": {}}, "trian: a study has no such setting. Did you mean 'train'?"),
    ({"colums": []}, "colums: a study has no such setting. Did you mean 'columns'?"),
    ({"train": {"steps": 5, "lr": "fast"}}, "train.lr must be a number. Got 'fast'."),
    ({"train": {"steps": 5, "lr": float("nan")}}, "train.lr must be a finite number. Got nan."),
    ({"train": {"steps": 5, "lr": -1}}, "train.lr must be a positive number. Got -1.0."),
    ({"train": {"steps": 2.5}}, "train.steps must be a whole number. Got 2.5."),
    ({"train": {"steps": True}}, "train.steps must be a whole number. Got True."),
    ({"train": {}}, "train must say how much a client does per round: either steps or epochs."),
    ({"train": {"steps": 5, "loss": "mse"}}, "train.loss: Train has no such setting."),
    (
        {"train": {"steps": 5, "sampling": "pas"}},
        "train.sampling: 'pas' is not known. Did you mean 'pass'?",
    ),
    (
        {"population": {"kind": "fixed", "clients": 0}},
        "population.clients must be at least 1. Got 0.",
    ),
    ({"data": {"partition": {"kind": "dirichlet", "alpha": 0}}}, "data.partition.alpha must be"),
    (
        {
            "population": {"kind": "fixed", "clients": 5},
            "participation": {"kind": "uniform", "clients": 6},
        },
        "participation.clients must be at most the 5 clients that exist in session 0. Got 6.",
    ),
    (
        {"population": {"kind": "pattern", "sessions": [[0, 0]]}},
        "population.sessions[0] must be a list without repeated clients.",
    ),
    (
        {"compare": {"start": "cold"}},
        "compare.start must be a list of values to compare. Got 'cold'.",
    ),
    ({"compare": {"seed": []}}, "compare.seed must be a list of values to compare. Got []."),
    ({"case": [{"train": {"lr": 1.0}}]}, "case[0].name must be a text. Got None."),
    ({"case": "all"}, "case must be a list. Got 'all'."),
    ({"transition_rounds": "ten"}, "transition_rounds must be a whole number. Got 'ten'."),
    ({"transition_rounds": 0}, "transition_rounds must be at least 1. Got 0."),
    ({"recovery": {"rho": 1.5}}, "recovery.rho must be in (0, 1]. Got 1.5."),
    (
        {"recovery": {"share": 0.5}},
        "recovery.share: Recovery has no such setting. Choose from: reference, rho.",
    ),
    (
        {"recovery": {"reference": {"start": "soup"}}},
        "recovery.reference must be settings of a row. Got {'start': 'soup'}. Write settings of the grid, "
        'such as { start = "previous" }.',
    ),
    (
        {"evaluation": {"probes": ["move"]}},
        "evaluation.probes[0]: 'move' is not known. Did you mean 'movement'?",
    ),
]


@pytest.mark.parametrize(("sections", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_mistakes_are_named(sections, message):
    with pytest.raises(ConfigError) as caught:
        config.study("wrong", {**BASE, **sections})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[train\n", "must be a TOML file"), (b"\xff\xfe", "must be a TOML file")],
)
def test_files_that_are_no_study(tmp_path, content, message):
    path = tmp_path / "study.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        config.load(path)
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "absent.toml")


def test_a_change_without_a_value(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("[train]\nsteps = 1\n")
    with pytest.raises(ConfigError, match="--set must be key=value"):
        config.load(path, ["train.lr"])
    with pytest.raises(ConfigError, match="must lie in a table"):
        config.load(path, ["train.steps.more=1"])


@pytest.mark.parametrize("path", STUDIES, ids=str)
def test_every_study_of_the_project_is_valid(path):
    assert config.load(path).cells


@dataclass(frozen=True, kw_only=True)
class Vehicle:
    forgives: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Car(Vehicle):
    doors: int = 4


@dataclass(frozen=True, kw_only=True)
class Bicycle(Vehicle):
    gears: int = 7


@pytest.fixture
def vehicles(monkeypatch):
    """A base class that accepts settings of its other kinds; a table without a kind means a car."""
    kinds = Kinds("vehicles", Vehicle, {"car": Car, "bicycle": Bicycle}, usual="car")
    monkeypatch.setitem(KINDS, Vehicle, kinds)


def test_a_setting_of_another_kind_is_ignored_with_one_warning(vehicles, caplog):
    for _ in range(2):
        made = config.convert(Vehicle, {"kind": "bicycle", "gears": 3, "doors": 2}, "vehicle")
        assert made == Bicycle(gears=3)
    assert caplog.messages == [
        "vehicle.doors is a setting of kind = 'car'. Got kind = 'bicycle', which does not use it."
    ]


def test_a_setting_of_no_kind_is_still_a_mistake(vehicles):
    with pytest.raises(ConfigError, match=r"^vehicle\.geers: Bicycle has no such setting"):
        config.convert(Vehicle, {"kind": "bicycle", "geers": 3}, "vehicle")


def test_a_table_without_a_kind_means_the_usual_one(vehicles):
    assert config.convert(Vehicle, {"doors": 2}, "vehicle") == Car(doors=2)


def test_lists_of_kinds(vehicles):
    made = config.convert(tuple[Vehicle, ...], ["car", {"kind": "bicycle", "gears": 1}], "vehicles")
    assert made == (Car(), Bicycle(gears=1))
    with pytest.raises(ConfigError, match=r"^vehicles\[1\]: 'cra' is not known"):
        config.convert(tuple[Vehicle, ...], ["car", "cra"], "vehicles")
