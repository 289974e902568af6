"""Frozen parameters: held once, never in the vector, never averaged, sent once."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import fedtide
from fedtide import config
from fedtide.deploy import roster as roster_module
from fedtide.deploy.roster import Roster
from fedtide.deploy.server import deployed
from fedtide.run.origin import origin
from fedtide.run.world import World
from tests.deploy.village import SHARE, Clock, Village
from tests.tasks.adapted import Adapted, lora
from tests.worlds import settings_of, timeless

TRAINED = 4 * (2 * 64 + 32 * 2 + 32 * 10 + 10)  # bytes of adapter and head
FROZEN = 2 * (64 * 32 + 32)  # bytes of the base, in bfloat16
NODES = {70: {"partition-id": 2}, 71: {"partition-id": 0}, 72: {"partition-id": 1}}


def experiment(engine="loop", **settings):
    given = {
        "train": fedtide.Train(model=Adapted(), steps=2, batch_size=8, lr=0.1),
        "population": fedtide.Fixed(clients=4, rounds=3),
        "algorithm": "scaffold",
        "engine": settings_of(kind=engine, workers=1, device="cpu", actors=2, of="loop"),
    }
    return fedtide.Experiment(**{**given, **settings})


def test_only_what_is_trained_travels():
    """The base counts in the first round of a client, once; then the adapter alone (SCAFFOLD: twice)."""
    first, second, third = fedtide.run(experiment()).rounds
    assert second["bytes_down"] == third["bytes_down"] == 4 * 2 * TRAINED
    assert first["bytes_up"] == second["bytes_up"] == 4 * 2 * TRAINED
    assert first["bytes_down"] == 4 * (2 * TRAINED + FROZEN)


def test_it_is_plain_training_of_what_is_not_frozen():
    """One client and one step, against torch."""
    e = experiment(
        population=fedtide.Fixed(clients=1, rounds=1),
        algorithm="fedavg",
        train=fedtide.Train(model=Adapted(), epochs=1, batch_size=2000, lr=0.1),
    )
    model, dataset = Adapted(), e.data.load()
    model.load_state_dict(e.train.model.state_dict())
    x, y = dataset.train.between(0, len(dataset.train))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    nn.CrossEntropyLoss()(model(x), y).backward()
    optimiser.step()
    found = fedtide.run(e).module()
    for name, part in model.named_parameters():
        torch.testing.assert_close(found.get_parameter(name), part, rtol=1e-4, atol=1e-6)


MODELS = {"own": Adapted, "peft": lora}
LORA = 4 * 2 * (64 + 32 + 32 + 10)  # bytes of the matrices of rank 2
# peft asks transformers in a way that transformers is about to give up.
quiet = pytest.mark.filterwarnings("ignore::FutureWarning")


@quiet
def test_bytes_are_those_of_the_adapter():
    """In both directions, in every round; the base counts once for each client."""
    train = fedtide.Train(model=lora(), steps=2, batch_size=8, lr=0.1)
    lines = fedtide.run(experiment(train=train, algorithm="fedavg")).rounds
    assert [line["bytes_up"] for line in lines] == [4 * LORA] * 3
    base = 4 * (64 * 32 + 32 + 32 * 10 + 10)
    assert [line["bytes_down"] for line in lines] == [4 * (LORA + base), 4 * LORA, 4 * LORA]


@quiet
@pytest.mark.parametrize("kind", MODELS)
def test_engines_agree_and_the_fast_ones_say_why_not(kind):
    model = MODELS[kind]().float()  # in bfloat16, the order of additions shows
    train = fedtide.Train(model=model, steps=2, batch_size=8, lr=0.1)
    one, many = (fedtide.run(experiment(kind, train=train)) for kind in ("loop", "vectorised"))
    torch.testing.assert_close(one.model.x, many.model.x, rtol=1e-5, atol=1e-5)
    with pytest.raises(fedtide.FedTideError, match="it is more than linear layers and ReLUs"):
        fedtide.run(experiment("compiled", train=train))


@quiet
@pytest.mark.parametrize("kind", MODELS)
def test_ray_equals_the_loop_bit_for_bit(kind):
    train = fedtide.Train(model=MODELS[kind](), steps=2, batch_size=8, lr=0.1)
    one, other = (fedtide.run(experiment(engine, train=train)) for engine in ("loop", "ray"))
    assert torch.equal(one.model.x, other.model.x)
    assert timeless(one.rounds) == timeless(other.rounds)


@pytest.fixture
def study(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(Village, "clock", clock)
    monkeypatch.setattr(roster_module, "monotonic", clock.monotonic)
    monkeypatch.setattr(roster_module, "sleep", clock.sleep)
    folder = tmp_path / f"frozen_{tmp_path.name}"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("adapted.py"), folder)
    (folder / "study.toml").write_text("""
population = { kind = "fixed", clients = 3, rounds = 3 }
algorithm = "scaffold"
train = { model = { kind = "adapted.py:adapted", rank = 3 }, steps = 2, lr = 0.1 }
engine = { kind = "loop", workers = 1, flower = { wait = 0.5, deadline = 5 } }
""")
    return folder / "study.toml"


def real(study, village):
    e = config.load(study).cells[0].experiment
    roster = Roster(village, e.engine.flower, 3)
    roster.gather(3)
    return deployed(0, e, roster, SHARE)


def bases(village):
    """How often the base was sent to each node."""
    sent = [m.metadata.dst_node_id for m in village.messages if "frozen arrays" in m.content]
    return {node: sent.count(node) for node in village.contexts}


@quiet
@pytest.mark.parametrize("kind", ["adapted", "lora"])
def test_real_clients_equal_the_loop_bit_for_bit(study, kind):
    study.write_text(study.read_text().replace("py:adapted", f"py:{kind}"))
    village = Village(study.parent, NODES)
    history = fedtide.run(real(study, village))
    expected = fedtide.run(config.load(study).cells[0].experiment)
    assert torch.equal(history.model.x, expected.model.x)
    assert bases(village) == dict.fromkeys(NODES, 0)  # each client builds the same


def test_a_base_that_only_the_server_has_is_sent_once_to_each_client(study, monkeypatch):
    weights = study.with_name("base.pt")
    torch.save(nn.Linear(64, 32).to(torch.bfloat16).state_dict(), weights)
    monkeypatch.setenv("ADAPTED_BASE", str(weights))
    expected = fedtide.run(config.load(study).cells[0].experiment)
    village = Village(study.parent, NODES)
    e = real(study, village)
    with World.build(e) as world:  # the server's; its clients find no file
        server = world.engine.task
    monkeypatch.setenv("ADAPTED_BASE", "")
    other = fedtide.run(config.load(study).cells[0].experiment)
    build = World.build.__func__
    made = classmethod(lambda cls, one: with_base(build(cls, one), server))
    monkeypatch.setattr(World, "build", made)
    history = fedtide.run(e)
    assert torch.equal(history.model.x, expected.model.x)
    assert not torch.equal(history.model.x, other.model.x)
    assert bases(village) == dict.fromkeys(NODES, 1)


def with_base(world, task):
    """The server's world has the weights from the file; those of clients have their own."""
    if type(world.engine).__name__ == "Flower":
        world.engine.task = world.engine.task.holding(task.frozen, task.constants)
    return world


def test_weights_are_part_of_what_a_run_is(study, monkeypatch):
    """Weights from outside of the user's file, and of a module as an object."""
    e = config.load(study).cells[0].experiment
    before = origin(e, 10)["key"]
    assert origin(e, 10)["key"] == before
    weights = study.with_name("base.pt")
    torch.save(nn.Linear(64, 32).to(torch.bfloat16).state_dict(), weights)
    monkeypatch.setenv("ADAPTED_BASE", str(weights))
    from fedtide.run import origin as module

    monkeypatch.setattr(module, "_KNOWN_WEIGHTS", {})
    assert origin(e, 10)["key"] != before
    own = experiment()
    changed = Adapted()
    changed.base.weight.data += 1
    assert (
        origin(own, 10)["key"]
        != origin(replace(own, train=replace(own.train, model=changed)), 10)["key"]
    )
