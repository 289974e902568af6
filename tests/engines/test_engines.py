"""Engines against plain PyTorch, what they refuse, and how one is chosen."""

import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

from fedtide.algorithms.fedavg import Down, FedAvg
from fedtide.core.errors import ConfigError, EngineError, TrainingError
from fedtide.core.types import Examples
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.engines.compiled import Compiled
from fedtide.engines.loop import Loop
from fedtide.engines.vectorised import Vectorised
from fedtide.models.text import CharLstm
from fedtide.tasks.task import Task
from fedtide.training.optimisers import Adam, Sgd
from tests.worlds import build_engine, settings_of, train_cohort

KINDS = ["loop", "vectorised"]
kinds = pytest.mark.parametrize("kind", KINDS)
SIZES = (8, 11, 3)


def client_data(sizes=SIZES, tokens=False, **batching):
    rng = np.random.default_rng(2)
    count = sum(sizes)
    inputs = rng.integers(5, size=(count, 6)) if tokens else rng.normal(size=(count, 2, 5, 5))
    inputs = torch.from_numpy(inputs if tokens else inputs.astype(np.float32))
    targets = torch.from_numpy(rng.integers(3, size=count))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    holdings = Static.of_owners(owners, len(sizes))
    settings = batching or {"batch_size": 4, "epochs": 2}
    return ClientData(Examples(inputs, targets), holdings, Batching(**settings), 6)


def exact(data):
    """The same data in double precision: rounding moves the sign before a ReLU, and Adam magnifies it."""
    return replace(data, examples=replace(data.examples, inputs=data.examples.inputs.double()))


def module(norm=False, dropout=False):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False),
            nn.BatchNorm2d(4) if norm else nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Dropout(0.5) if dropout else nn.Identity(),
            nn.Flatten(),
            nn.Linear(36, 3),
        )


def build(kind, net, data, policy="average", **more):
    choice = settings_of(kind=kind, device="cpu", **{"workers": 1} | more)
    return build_engine(choice, Task(net), data, policy)


def engine_round(engine, rule, lr=0.1, ids=(0, 1, 2), t=4):
    ids = np.array(ids)
    x, buffers = engine.task.initial
    with closing(engine):
        steps = engine.data.steps(t, ids)
        return train_cohort(engine, FedAvg(), rule, lr, Down(x), buffers, ids, steps, t)


def plain_round(net, rule, data, client, lr=0.1, t=4):
    """What anybody would write: a module, an optimiser, and batches of real examples only."""
    net.train()
    if isinstance(rule, Sgd):
        optimiser = torch.optim.SGD(net.parameters(), lr, rule.momentum, weight_decay=rule.decay)
    else:
        optimiser = torch.optim.Adam(net.parameters(), lr, weight_decay=rule.decay)
    before = parameters_to_vector(net.parameters()).detach()
    ids, losses, right = np.array([client]), [], []
    picks = data.picks(t, ids, data.steps(t, ids), "batch")
    for places, mask in zip(picks.places[0], picks.mask[0], strict=True):
        inputs, targets = data.examples.take(torch.from_numpy(places[mask]))
        optimiser.zero_grad()
        logits = net(inputs)
        each = cross_entropy(logits, targets, reduction="none")
        each.mean().backward()
        if rule.clip:
            clip_grad_norm_(net.parameters(), rule.clip)
        optimiser.step()
        losses += each.tolist()
        right += (logits.argmax(1) == targets).tolist()
    moved = parameters_to_vector(net.parameters()).detach() - before
    return moved, sum(losses) / len(losses), sum(right) / len(right)


@pytest.mark.portable
@kinds
@pytest.mark.parametrize(
    "rule", [Sgd(), Sgd(momentum=0.9, decay=0.01, clip=0.7), Adam(decay=0.01)], ids=repr
)
def test_a_round_is_what_plain_pytorch_does(kind, rule):
    """With last batches that are not full: rows that only fill the shape count nowhere."""
    data, lr = exact(client_data()), 0.02
    result = engine_round(build(kind, module().double(), data), rule, lr)
    assert result.walk.steps.tolist() == [4, 6, 2]
    for client in range(3):
        moved, loss, accuracy = plain_round(module().double(), rule, data, client, lr)
        torch.testing.assert_close(result.up.delta[client], moved, atol=1e-9, rtol=0)
        assert float(result.training.loss[client]) == pytest.approx(loss, abs=1e-9)
        assert float(result.training.credit[client]) == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.portable
@kinds
def test_batch_norm_is_that_of_pytorch_on_full_batches(kind):
    data = exact(client_data((8, 12, 4)))
    result = engine_round(build(kind, module(norm=True).double(), data), Sgd(momentum=0.9))
    for client in range(3):
        net = module(norm=True).double()
        moved, _, _ = plain_round(net, Sgd(momentum=0.9), data, client)
        torch.testing.assert_close(result.up.delta[client], moved, atol=1e-9, rtol=0)
        for name, buffer in net.named_buffers():
            torch.testing.assert_close(result.buffers[name][client], buffer, atol=1e-9, rtol=0)


@pytest.mark.portable
@kinds
def test_batch_norm_is_that_of_pytorch_on_batches_that_are_not_full(kind):
    data = exact(client_data((10, 11, 3), batch_size=4, epochs=1))
    result = engine_round(build(kind, module(norm=True).double(), data), Sgd())
    for client in range(3):
        moved, _, _ = plain_round(module(norm=True).double(), Sgd(), data, client)
        torch.testing.assert_close(result.up.delta[client], moved, atol=1e-9, rtol=0)


@pytest.mark.portable
@kinds
def test_a_client_does_the_same_in_every_cohort(kind):
    """Up to rounding on the vectorised engine, where the size of the stack may order sums differently."""
    data = client_data()
    among = engine_round(build(kind, module(), data), Sgd(), ids=(0, 1, 2))
    alone = engine_round(build(kind, module(), data), Sgd(), ids=(1,))
    torch.testing.assert_close(among.up.delta[1], alone.up.delta[0], atol=1e-6, rtol=0)
    if kind == "loop":
        assert torch.equal(among.up.delta[1], alone.up.delta[0])


@kinds
def test_steps_may_be_fewer_than_the_data_allow(kind):
    """A plan that grants two of four steps: the first two batches, and no others."""
    data, engine = client_data(), build(kind, module(), client_data())
    x, buffers = engine.task.initial
    ids, steps = np.array([0, 1]), np.array([2, 1])
    with closing(engine):
        cut = train_cohort(engine, FedAvg(), Sgd(), 0.1, Down(x), buffers, ids, steps, 4)
    engine = build(kind, module(), data)
    with closing(engine):
        first = train_cohort(engine, FedAvg(), Sgd(), 0.1, Down(x), buffers, ids[:1], steps[:1], 4)
    torch.testing.assert_close(cut.up.delta[0], first.up.delta[0], atol=1e-6, rtol=0)
    assert cut.walk.steps.tolist() == [2, 1]


@pytest.mark.portable
@kinds
@pytest.mark.parametrize("workers", [1, 2])
def test_evaluation_is_that_of_plain_pytorch(kind, workers):
    data, net = client_data((1100, 1000)), module(norm=True)
    engine = build(kind, net, data, workers=workers)
    index = torch.arange(0, 2100, 2)
    with closing(engine):
        scores = engine.evaluate(engine.task.initial, data.examples.some(index))
    with torch.no_grad():
        logits = net.eval()(data.examples.inputs[index])
    targets = data.examples.targets[index]
    assert scores.accuracy == pytest.approx(float((logits.argmax(1) == targets).float().mean()))
    assert scores.loss == pytest.approx(float(cross_entropy(logits, targets)), rel=1e-5)


@kinds
def test_a_loss_that_is_no_number_stops_the_run(kind):
    data = client_data(batch_size=4, epochs=3)
    engine = build(kind, nn.Sequential(nn.Flatten(), nn.Linear(50, 3)), data)
    with pytest.raises(TrainingError) as caught:
        engine_round(engine, Sgd(decay=1.0), lr=1e30, ids=(1, 2), t=7)
    message = str(caught.value)
    assert message.startswith(
        "round 7, client 1: the training loss and the update must be numbers. Got a loss of "
    )
    assert message.endswith(
        " with a learning rate of 1e+30. "
        "Try a smaller train.lr, or clip gradients with train.optimiser.clip."
    )
    assert len(engine.memory) == 0


@kinds
def test_only_the_broken_client_is_named(kind):
    data = client_data(batch_size=4, epochs=1)
    data.examples.inputs[8:19] = float("inf")  # what client 1 holds
    engine = build(kind, nn.Sequential(nn.Flatten(), nn.Linear(50, 3)), data)
    with pytest.raises(TrainingError, match=r"^round 4, client 1: .* Got a loss of nan with"):
        engine_round(engine, Sgd())


# Choosing


def lstm():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CharLstm(embedding=3, hidden=4, layers=1, dropout=0).build((6,), 3, vocabulary=5)


# torch 2.13 steps through an LSTM client by client, with a warning, instead of refusing it.
def test_vectorised_refuses_an_lstm_and_names_the_way_out():
    with pytest.raises(EngineError) as caught:
        build("vectorised", lstm(), client_data(tokens=True))
    message = str(caught.value)
    assert message.startswith("engine.kind must fit the model EmbedHead: it cannot be vectorised (")
    assert message.endswith("). Use engine.kind = 'loop' or 'auto'.")
    assert "\n" not in message


def test_auto_loops_over_an_lstm():
    engine = build("auto", lstm(), client_data(tokens=True))
    assert isinstance(engine, Loop)
    assert engine.why.startswith("loop: EmbedHead cannot be vectorised: ")


@pytest.mark.portable
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_the_loop_runs_an_lstm():
    data = client_data(tokens=True)
    result = engine_round(build("loop", lstm(), data), Sgd())
    for client in range(3):
        moved, _, _ = plain_round(lstm(), Sgd(), data, client)
        torch.testing.assert_close(result.up.delta[client], moved, atol=1e-6, rtol=0)


class Stubborn(nn.Module):
    """It looks at a value, which no stack of clients can do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(50, 3)

    def forward(self, inputs):
        out = self.layer(inputs.flatten(1))
        return out if float(out.sum()) > 0 else 2 * out


def test_what_cannot_be_vectorised_is_refused_in_one_sentence():
    with pytest.raises(EngineError) as caught:
        build("vectorised", Stubborn(), client_data())
    message = str(caught.value)
    assert message.startswith("engine.kind must fit the model Stubborn: it cannot be vectorised (")
    assert message.endswith("). Use engine.kind = 'loop' or 'auto'.")
    assert "\n" not in message
    engine = build("auto", Stubborn(), client_data())
    assert isinstance(engine, Loop)
    assert engine.why.startswith("loop: Stubborn cannot be vectorised: ")
    assert engine_round(engine, Sgd()).up.delta.abs().sum() > 0


def test_auto_stacks_what_can_be_stacked():
    net = nn.Sequential(nn.Flatten(), nn.Linear(50, 8), nn.Tanh(), nn.Linear(8, 3))
    engine = build("auto", net, client_data())
    assert type(engine) is Vectorised
    assert engine.why == "vectorised: Sequential can be stacked over clients"


def chain(width=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(50, width), nn.ReLU(), nn.Linear(width, 3))


def test_auto_compiles_large_chains_of_linear_layers():
    engine = build("auto", chain(width=600), client_data())
    assert type(engine) is Compiled
    assert engine.why == "compiled: Sequential is a chain of linear layers"


def test_auto_does_not_compile_for_a_moments_work():
    engine = build("auto", chain(), client_data())
    assert type(engine) is Vectorised
    assert (
        engine.why
        == "vectorised: Sequential can be stacked over clients, and is too small to be worth compiling"
    )


def test_without_a_compiler_chains_are_stacked(monkeypatch):
    monkeypatch.setattr("fedtide.engines.trial.find_spec", lambda name: None)
    engine = build("auto", chain(width=600), client_data())
    assert type(engine) is Vectorised
    assert engine.why == (
        "vectorised: Sequential can be stacked over clients, but not compiled: "
        "the package numba is missing: pip install fedtide[fast]"
    )


@pytest.mark.parametrize(
    ("net", "changed", "why"),
    [
        (lambda: chain(), {"mean": (0.5, 0.5), "std": (1.0, 1.0)}, "its examples are prepared"),
        (
            lambda: chain().to(torch.bfloat16),
            {"inputs": client_data().examples.inputs.to(torch.bfloat16)},
            "it computes on cpu with torch.bfloat16",
        ),
        (lambda: module(), {}, "it is more than linear layers and ReLUs"),
        (lambda: nn.Linear(5, 3), {}, "it is more than linear layers and ReLUs"),
    ],
)
def test_what_cannot_be_compiled_says_why(net, changed, why):
    data = client_data()
    data = replace(data, examples=replace(data.examples, **changed))
    with pytest.raises(EngineError, match=f"it cannot be compiled .{why}"):
        build("compiled", net(), data)


def test_auto_loops_over_convolutions_on_a_processor():
    engine = build("auto", module(), client_data())
    assert isinstance(engine, Loop)
    assert engine.why == (
        "loop: on a CPU, stacked convolutions are slower than one client at a time"
    )


@kinds
def test_what_the_study_asks_is_done(kind):
    engine = build(kind, module(), client_data())
    assert type(engine) is {"loop": Loop, "vectorised": Vectorised}[kind]
    assert engine.why == f"{kind}: as the study asks"


def test_the_trial_finds_dropout_and_leaves_no_trace():
    before = torch.get_rng_state()
    assert build("auto", module(dropout=True), client_data()).traits.is_random
    assert not build("auto", module(), client_data()).traits.is_random
    assert torch.equal(torch.get_rng_state(), before)


def test_a_device_that_is_not_here():
    with pytest.raises(EngineError) as caught:
        settings_of(device="gpu9").place()
    assert str(caught.value) == (
        "engine.device must be a device of this machine. Got 'gpu9'. "
        "Use 'cpu', or 'auto' for the best there is."
    )
    assert settings_of(device="cpu").place() == torch.device("cpu")


@pytest.mark.parametrize("setting", ["workers", "chunk"])
def test_wrong_settings(setting):
    with pytest.raises(ConfigError) as caught:
        settings_of(**{setting: -1})
    assert str(caught.value) == f"engine.{setting} must be zero or positive. Got -1."


def test_a_compiler_that_does_not_load(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr("fedtide.engines.trial.find_spec", lambda name: name)
    engine = build("auto", chain(width=600), client_data())
    assert type(engine) is Vectorised
    assert "but not compiled: the package numba does not load: " in engine.why
