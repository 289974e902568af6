"""Errors in an author's code: FedTide names the method, the stage, the round, the file and the line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from fedtide import (
    Evaluation,
    Experiment,
    FedTideError,
    Fixed,
    LoopSettings,
    RaySettings,
    Train,
    VectorisedSettings,
    load,
    run,
    run_study,
)
from fedtide.core.errors import AuthorError, ConfigError, EngineError
from fedtide.extend import Available, FedAvg, Network, Probe, Upload, Vector
from fedtide.run.world import World

HERE = Path(__file__).name


def failed(**sections):
    """The error of a small run on the loop, or with these sections."""
    small = {
        "population": Fixed(clients=3, rounds=2),
        "train": Train(steps=2),
        "engine": LoopSettings(workers=1),
    }
    with pytest.raises(FedTideError) as caught:
        run(Experiment(**{**small, **sections}))
    return caught.value


def line_of(mark):
    """The number of the line in this file that ends with this comment."""
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# raises in {mark}"))


@dataclass(frozen=True, kw_only=True)
class InDirection(FedAvg):
    def direction(self, grad, y, k, down, mine):
        return {}["missing"]  # raises in direction


@dataclass(frozen=True, kw_only=True)
class InReport(FedAvg):
    def report(self, y, walk, down, mine):
        if not torch.equal(y, down.x):  # not where FedTide measures how large an upload is
            raise ValueError("odd")  # raises in report
        return Upload(y - down.x), mine


@dataclass(frozen=True, kw_only=True)
class InAggregate(FedAvg):
    def aggregate(self, server, up, cohort):
        return {}["missing"]  # raises in aggregate


@dataclass(frozen=True, kw_only=True)
class InInit(FedAvg):
    def init(self, x, context):
        return {}["missing"]  # raises in init


MENDED = "Mend it there."
ALONE = "Mend it there; engine.kind = 'loop' with engine.workers = 1 runs client by client."


@pytest.mark.parametrize(
    ("algorithm", "where", "got", "do"),
    [
        (InDirection(), "client 0, local training", "KeyError: 'missing'", ALONE),
        (InReport(), "client 0, local training", "ValueError: odd", ALONE),
        (InAggregate(), "aggregation", "KeyError: 'missing'", MENDED),
        (InInit(), "start", "KeyError: 'missing'", MENDED),
    ],
)
def test_an_exception_is_named_with_all_that_is_known(algorithm, where, got, do):
    error, name = failed(algorithm=algorithm), type(algorithm).__name__
    method = name.removeprefix("In").lower()
    assert isinstance(error, AuthorError)
    assert str(error) == (
        f"round 0, {where}: {name}.{method} must run without an error. Got {got} ({HERE}, line "
        f"{line_of(method)}). {do}"
    )


@dataclass(frozen=True, kw_only=True)
class InSecondRound(FedAvg):
    """Fails where a client takes part for the second time."""

    def memory(self, down):
        return Count(torch.zeros(()))

    def report(self, y, walk, down, mine):
        if mine.rounds > 0:
            raise ValueError("again")
        return Upload(y - down.x), Count(mine.rounds + 1)


class Count(NamedTuple):
    rounds: torch.Tensor


def test_round_and_client_are_those_of_the_error():
    assert str(failed(algorithm=InSecondRound())).startswith("round 1, client 0, local training: ")


@pytest.mark.parametrize("workers", [1, 2])
def test_threads_make_no_difference(workers):
    error = failed(algorithm=InDirection(), engine=LoopSettings(workers=workers))
    assert "client 0" in str(error)


def test_an_error_arrives_from_ray_as_it_is():
    pytest.importorskip("ray")
    engine = RaySettings(of="loop", actors=1)
    error = failed(algorithm=InDirection(), engine=engine)
    assert type(error) is AuthorError
    assert str(error) == str(failed(algorithm=InDirection()))


@dataclass(frozen=True, kw_only=True)
class Branches(FedAvg):
    def direction(self, grad, y, k, down, mine):
        return grad if grad.norm() > 1 else 2 * grad  # raises in vmap


def test_a_branch_on_values_runs_on_the_loop_if_the_engine_is_chosen():
    history = run(
        Experiment(
            population=Fixed(clients=3, rounds=1), train=Train(steps=1), algorithm=Branches()
        )
    )
    assert history.engine == (
        "loop: EmbedHead cannot be vectorised: Branches.direction: a branch on the value of a tensor, "
        f"which vmap cannot follow ({HERE}, line {line_of('vmap')})"
    )


def test_a_branch_on_values_is_refused_by_vectorised():
    error = failed(algorithm=Branches(), engine=VectorisedSettings())
    assert isinstance(error, EngineError)
    assert str(error) == (
        "engine.kind must fit the model EmbedHead: it cannot be vectorised (Branches.direction: a branch on "
        f"the value of a tensor, which vmap cannot follow ({HERE}, line {line_of('vmap')})). "
        "Use engine.kind = 'loop' or 'auto'."
    )


class NoX(NamedTuple):
    model: Vector


class Two(NamedTuple):
    a: Vector


def returning(method, value):
    """FedAvg with a method that returns `value` of its arguments."""
    methods = {method: lambda self, *given: value(*given)}
    return dataclass(frozen=True, kw_only=True)(type("Mine", (FedAvg,), methods))()


WRONG = {
    "init": (lambda x, context: NoX(x), "Mine.init must return a NamedTuple of tensors with the model"),
    "broadcast": (lambda server: server.x, "Mine.broadcast must return a NamedTuple of tensors with"),
    "aggregate": (lambda *given: None, "Mine.aggregate must return a NamedTuple of tensors with the"),
    "move": (lambda *given: None, "Mine.move must return a NamedTuple of tensors with the model in"),
    "direction": (lambda grad, *rest: grad[:3], r"like `grad`, shape \(650,\)\. Got shape \(3,\)\. R"),
    "penalty": (lambda y, out, *rest: out.logits, r"shape \(\d+,\), or a scalar\. Got shape \(\d+, 10"),
    "report": (lambda y, *rest: Two(y), r"two NamedTuples of tensors.* Got Two\. Return `Upload\(\.\.\."),
}  # fmt: skip


@pytest.mark.parametrize("kind", [LoopSettings, VectorisedSettings])
@pytest.mark.parametrize("method", WRONG)
def test_what_a_method_returns_is_checked(method, kind):
    value, message = WRONG[method]
    error = failed(algorithm=returning(method, value), engine=kind(workers=1))
    assert isinstance(error, AuthorError)
    assert re.search(message, str(error))


@pytest.mark.parametrize("value", [None, "none"])
def test_a_penalty_is_a_number_or_a_tensor(value):
    error = failed(algorithm=returning("penalty", lambda *given: value))
    assert f"or a scalar. Got {type(value).__name__}." in str(error)


def test_a_memory_keeps_its_fields_and_shapes():
    algorithm = returning("report", lambda y, walk, down, mine: (Upload(y - down.x), Two(y)))
    assert "Got Two['a'] after Nothing[]. Return as second value" in str(
        failed(algorithm=algorithm)
    )


class Forgot(FedAvg):
    power: float = 1.0


FORGOT = (
    "algorithm must be a dataclass: Forgot has the setting 'power'. Got 'class Forgot without @dataclass'. "
    "Write @dataclass(frozen=True, kw_only=True) above the class."
)


def test_a_class_without_dataclass_from_python():
    for settings in ({}, {"power": 2.0}):
        with pytest.raises(ConfigError) as caught:
            Forgot(**settings)
        assert str(caught.value) == FORGOT


STUDY = """
[population]
kind = "fixed"
clients = 3
rounds = 1
[train]
steps = 1
"""
OWN = """
from torch import nn
from fedtide.extend import FedAvg

class Forgot(FedAvg):
    power: float = 1.0

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))

    def forward(self, inputs):
        return self.layers(inputs)
"""


@pytest.fixture
def study(tmp_path):
    """A study file in a folder of its own, beside own.py."""
    folder = tmp_path / f"folder-{tmp_path.name}"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


def test_a_class_without_dataclass_from_a_study_file(study):
    for value in ("own.py:Forgot", "{ kind = 'own.py:Forgot', power = 2 }"):
        with pytest.raises(ConfigError) as caught:
            load(study, [f"algorithm={value}"])
        assert str(caught.value) == FORGOT


def test_a_study_file_names_a_module_and_its_settings(study, tmp_path):
    plan = load(study, ["train.model={ kind = 'own.py:Net', width = 2 }"])
    outcome = run_study(plan, tmp_path / "out", jobs=1)
    assert outcome.to_pandas()["bytes_up"].tolist() == [3 * 4 * (64 * 2 + 2 + 2 * 10 + 10)]
    plan = load(study, ["train.model={ kind = 'own.py:Net', height = 2 }"])
    with pytest.raises(
        ConfigError, match=r"train\.model must have the arguments of Net\(\)\. Got: "
    ):
        run_study(plan, tmp_path / "other", jobs=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, inputs):
        return self.layers(inputs)


class Pair(Net):
    def forward(self, inputs):
        return self.layers(inputs), inputs


class Broken(Net):
    def forward(self, inputs):
        return self.layres(inputs)  # raises in forward


def test_a_class_of_modules_is_a_model():
    history = run(
        Experiment(population=Fixed(clients=2, rounds=1), train=Train(model=Net, steps=1))
    )
    assert len(history.model.x) == 650


@pytest.mark.parametrize("model", [Pair, Pair()])
def test_a_model_returns_one_tensor(model):
    assert str(failed(train=Train(model=model, steps=1))) == (
        "train.model must be a module whose forward returns one tensor, the outputs of Pair, or has them as "
        "`logits`. Got 'tuple'. "
        "Return the outputs alone, or wrap the module in one that does."
    )


def test_an_exception_in_a_model():
    error = failed(train=Train(model=Broken(), steps=1))
    assert str(error).startswith(
        "round 0, preparation: Broken.forward must run without an error. Got AttributeError: "
    )
    assert f"({HERE}, line {line_of('forward')})" in str(error)


class Large(Net):
    def forward(self, inputs):
        return self.layers(inputs) + torch.empty(1 << 60)


def test_too_little_memory_is_not_an_error_of_the_author():
    error = failed(train=Train(model=Large(), steps=1))
    assert str(error).startswith("The run must fit into this machine's memory. Got: ")


def test_lazy_layers_have_no_shapes():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    message = (
        "train.model must be a module whose parameters have known shapes. Got 'lazy layers: 1.w"
    )
    assert str(failed(train=Train(model=model, steps=1))).startswith(message)


@dataclass(frozen=True, kw_only=True)
class BrokenProbe(Probe):
    def measure(self, done):
        return {}["missing"]


@dataclass(frozen=True, kw_only=True)
class BrokenParticipation(Available):
    def present(self, who, t, session, seed):
        return {}["missing"]


@dataclass(frozen=True, kw_only=True)
class BrokenNetwork(Network):
    def plan(self, state, t, ids, work, seed):
        return {}["missing"]


def broken_function(done):
    return {}["missing"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"evaluation": Evaluation(probes=(BrokenProbe(),))}, "probes: BrokenProbe.measure must run"),
        ({"evaluation": Evaluation(probes=(broken_function,))}, "probes: broken_function must run"),
        ({"participation": BrokenParticipation()}, "draw of the cohort: BrokenParticipation.present"),
        ({"network": BrokenNetwork()}, "plan of the round: BrokenNetwork.plan must run without an"),
    ],
)  # fmt: skip
def test_other_kinds_are_named_too(sections, message):
    error = failed(**sections)
    assert isinstance(error, AuthorError)
    assert f"round 0, {message}" in str(error)
    assert f"Got KeyError: 'missing' ({HERE}, line " in str(error)


def test_a_probe_returns_entries():
    error = failed(evaluation=Evaluation(probes=(lambda done: None,)))
    assert "<lambda> must return entries for the journal, a dict from keys to values." in str(error)


def test_errors_of_other_code_pass_unchanged(monkeypatch):
    """An error inside FedTide itself is not blamed on an author."""
    monkeypatch.setattr(World, "share", lambda *given: {}["missing"])
    with pytest.raises(KeyError):
        run(Experiment(population=Fixed(clients=2, rounds=1), train=Train(steps=1)))
