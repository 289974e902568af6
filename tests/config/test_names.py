"""From Python a name stands for the kind of that name, and everything else is a sentence, not a traceback."""

from pathlib import Path

import pytest

import fedtide
from fedtide import Data, Experiment, Train
from fedtide.algorithms import FedProx
from fedtide.core.errors import ConfigError
from fedtide.data.partition import Partition
from fedtide.data.stores import Stores
from fedtide.models.base import ModelSpec
from fedtide.population.sessions import Fixed
from fedtide.run.experiment import sections
from fedtide.run.kinds import KINDS
from fedtide.training.optimisers import Rule
from fedtide.training.schedules import Schedule


def train(**parts):
    return Train(steps=1, **parts)


# Who has the field, as a class and in words; the field; what it must be.
FIELDS = [
    *((Experiment, "", name, base) for name, base in sections().items()),
    (train, "train.", "model", ModelSpec),
    (train, "train.", "optimiser", Rule),
    (train, "train.", "schedule", Schedule),
    (Data, "data.", "partition", Partition),
    (Data, "data.", "stores", Stores),
]
every_field = pytest.mark.parametrize(
    ("whole", "where", "field", "base"), FIELDS, ids=[f"{row[1]}{row[2]}" for row in FIELDS]
)


def made(whole, field, value):
    """The field as `value()` makes it, or what is wrong, as where a kind needs settings or other sections."""
    try:
        return getattr(whole(**{field: value()}), field)
    except ConfigError as error:
        return str(error)


@every_field
def test_every_kind_by_its_name(whole, where, field, base):
    """A name makes what the kind makes with its defaults; Train and Data know the names of study files."""
    for name, kind in KINDS.get(base, {}).items():
        assert made(whole, field, lambda name=name: name) == made(whole, field, kind)


@every_field
@pytest.mark.parametrize("wrong", ["no such kind", 3, None, {"kind": "fedprox"}, Path])
def test_everything_else_is_a_sentence(whole, where, field, base, wrong):
    with pytest.raises(
        ConfigError, match=rf"^{where}{field}(:| must be) .* {field}=\w+\(\.\.\.\)\.$"
    ):
        whole(**{field: wrong})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Experiment(algorithm="fedprocks"), "Did you mean 'fedprox'? With settings, write"),
        (lambda: Experiment(algorithm=FedProx), "Write algorithm=FedProx(...)."),
        (lambda: Experiment(engine="lop"), "Did you mean 'loop'? With settings, write engine="),
        (lambda: Experiment(data="mnist"), "With settings, write data=Data(...)."),
        (lambda: fedtide.run("a.toml"), "Got 'a.toml'. For a study file, write run_study(load("),
        (lambda: fedtide.run_study(Path("a.toml")), "Write run_study(load('study.toml'))"),
        (lambda: fedtide.run_study(Experiment()), "Got 'Experiment'. Write"),
    ],
)
def test_what_to_write_instead(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


def test_a_run_made_of_names_is_the_same_run():
    named = Experiment(
        data=Data(partition="dirichlet"),
        population=Fixed(clients=3, rounds=2),
        algorithm="fedprox",
        participation="full",
        train=train(model="linear", optimiser="sgd", schedule="constant"),
    )
    assert named.algorithm == FedProx()
    assert len(fedtide.run(named).rounds) == 2
