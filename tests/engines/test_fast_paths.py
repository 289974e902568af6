"""Every fast path computes what the loop engine computes, and nothing is taken for one that is not."""

from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtide.algorithms import ALGORITHMS
from fedtide.algorithms.base import Context, stacked
from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedprox import FedProx
from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves
from fedtide.core.types import Examples, Model, Nothing
from fedtide.data.batches import Batching, ClientData
from fedtide.data.holdings import Static
from fedtide.engines.trial import is_chain
from fedtide.engines.vectorised import Vectorised
from fedtide.models.base import EmbedHead
from fedtide.tasks.task import Task
from fedtide.training.messages import Row
from fedtide.training.optimisers import Adam, Sgd
from tests.worlds import build_engine, settings_of, train_cohort

pytestmark = pytest.mark.portable
SIZES = (9, 4, 17, 12)
ENGINES = ("loop", "vectorised", "compiled")
RULES = {
    "sgd": Sgd(),
    "heavy": Sgd(momentum=0.9, decay=0.01),
    "carried": Sgd(momentum=0.5, carried=True),
    "clipped": Sgd(momentum=0.9, decay=0.01, clip=0.5),
    "adam": Adam(decay=0.01, clip=0.5),
}


def images(channels=1):
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(sum(SIZES), channels, 8, 8), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(3, size=sum(SIZES)))
    return Examples(torch.from_numpy(pixels), labels, (0.4,) * channels, (0.3,) * channels)


def exact(channels=1):
    """In double precision: rounding moves the sign before a ReLU, and Adam makes whole steps of it."""
    raw = images(channels)
    return Examples(raw.ready(raw.inputs).double(), raw.targets)


def engine(kind, module, examples, **more):
    owners = np.repeat(np.arange(len(SIZES)), SIZES)
    holdings = Static.of_owners(owners, len(SIZES))
    data = ClientData(examples, holdings, Batching(batch_size=4, epochs=2), 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        task = Task(module())
    settings = settings_of(kind=kind, device="cpu", **{"workers": 1} | more)
    return build_engine(settings, task, data)


def trained(runner, algorithm, rule, rounds=3):
    """Everything that clients send in a few rounds, one after the other."""
    x, buffers = runner.task.initial
    server = algorithm.init(x, Context(runner.task.layout, len(SIZES)))
    sent = []
    with closing(runner):
        for t in range(rounds):
            ids = np.array([0, 2, 3] if t else [0, 1, 2])
            down = algorithm.broadcast(server)
            result = train_cohort(
                runner, algorithm, rule, 0.05, down, buffers, ids, runner.data.steps(t, ids), t
            )
            sent += [*leaves(result.up), *result.training]
    return sent


def agree(module, algorithm, rule, examples=None, engines=ENGINES, tolerance=1e-9):
    """All engines send the same numbers, up to rounding in double precision."""
    examples = exact() if examples is None else examples
    runs = [
        trained(engine(e, lambda: module().double(), examples), algorithm, rule) for e in engines
    ]
    for mine, *others in zip(*runs, strict=True):
        for theirs in others:
            torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 3))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "scaffold", "fedacg", "feddyn", "moon"])
def test_the_closed_form_computes_what_the_loop_computes(kind, rule):
    agree(mlp, ALGORITHMS[kind](), RULES[rule], tolerance=1e-7 if rule == "adam" else 1e-9)


@dataclass(frozen=True, kw_only=True)
class Held(FedAvg):
    """A penalty on everything a penalty can see: the model, its features, its logits, other looks."""

    def penalty(self, y, out, batch, look, down, mine):
        drift = (y - 2 * down.x).square().sum()
        features = (out.features * look(down.x).features).flatten(1).sin().sum(1)
        return 0.1 * drift + features + 0.3 * (out.logits * look(0.5 * y).logits.cos()).sum(1)


HALVES = {
    "not split": mlp,
    "features in the middle": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU()), nn.Linear(9, 3)
    ),
    "features before two layers": lambda: EmbedHead(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 9)),
        nn.Sequential(nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)),
    ),
    "features are the inputs": lambda: EmbedHead(nn.Flatten(), nn.Linear(64, 3)),
    "nothing behind the features": lambda: EmbedHead(mlp(), nn.Identity()),
}


@pytest.mark.parametrize("halves", HALVES)
def test_a_penalty_in_closed_form_is_that_of_the_loop(halves):
    assert is_chain(Task(HALVES[halves]()))
    agree(HALVES[halves], Held(), Sgd(momentum=0.5))


class Backwards(Sgd):
    """A rule of somebody's own."""

    def step(self, y, direction, state, lr):
        return y + lr * direction, state


@dataclass(frozen=True, kw_only=True)
class Added(FedAvg):
    """Adds what fits its vectors only by broadcasting."""

    @stacked
    def direction(self, grad, y, k, down, mine):
        return grad + down.x.mean()


@dataclass(frozen=True, kw_only=True)
class Sly(FedAvg):
    """Looks at the step without asking what it is."""

    @stacked
    def direction(self, grad, y, k, down, mine):
        return grad + down.x if isinstance(k, int) and k >= 1 else grad


class Turned(Sgd):
    """A step that leaves stacks in another order in memory."""

    def step(self, y, direction, state, lr):
        turn = torch.eye(len(y), dtype=y.dtype).flip(0)
        return turn @ (turn @ y) - lr * direction, state


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [(FedAvg(), Backwards()), (FedAvg(), Turned()), (Added(), Sgd()), (Sly(), Sgd())],
)
def test_what_only_looks_like_sgd_is_not_taken_for_it(algorithm, rule):
    agree(mlp, algorithm, rule)


@dataclass(frozen=True, kw_only=True)
class Noisy(FedAvg):
    """Random numbers where there should be none; at least they are drawn at every step."""

    @stacked
    def direction(self, grad, y, k, down, mine):
        return grad + torch.randn_like(down.x)

    def penalty(self, y, out, batch, look, down, mine):
        return 1e-9 * torch.randn(()) * out.logits.sum(1)


@pytest.mark.parametrize("kind", ["vectorised", "compiled"])
def test_random_numbers_do_not_stop_a_run(kind):
    ready = images().prepared(1 << 20)
    with torch.random.fork_rng():
        sent = trained(engine(kind, mlp, ready), Noisy(), Sgd())
    assert all(torch.isfinite(each).all() for each in sent)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_without_an_output_are_refused(label):
    ready = images().prepared(1 << 20)
    ready.targets[5] = label
    with pytest.raises(EngineError, match="must have an output for every label"):
        engine("compiled", mlp, ready)


def test_inputs_that_lie_apart_and_inputs_that_are_shared():
    """A slice of wider rows; and examples that use the inputs of others."""
    ready = exact()
    wide = torch.cat([ready.inputs, ready.inputs], 3)[..., :8]
    assert not wide.is_contiguous()
    short = torch.arange(len(ready), dtype=torch.int32) % 7
    shared = replace(ready, inputs=ready.inputs[:7], rows=short)
    for examples in (replace(ready, inputs=wide), shared):
        agree(mlp, FedAvg(), Sgd(), examples, engines=("loop", "compiled"))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["loop", "vectorised"])
def test_results_do_not_depend_on_the_number_of_threads(kind, workers):
    alone = trained(engine(kind, mlp, images(), chunk=1), ALGORITHMS["scaffold"](), Sgd())
    together = trained(
        engine(kind, mlp, images(), chunk=1, workers=workers), ALGORITHMS["scaffold"](), Sgd()
    )
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_prepared_examples_are_those_that_are_taken_one_by_one():
    raw = images(channels=3)
    ready = raw.prepared(1 << 20)
    index = torch.tensor([[3, 1], [0, 8]])
    assert ready.inputs.dtype == torch.float32
    assert not ready.mean
    for a, b in zip(raw.take(index), ready.take(index), strict=True):
        assert torch.equal(a, b)


def test_examples_that_do_not_fit_stay_as_they_are():
    raw = images()
    assert raw.prepared(raw.inputs.numel()) is raw


def test_tokens_are_not_prepared():
    tokens = Examples(torch.zeros(4, 6, dtype=torch.int16), torch.zeros(4, dtype=torch.long))
    assert tokens.prepared(1 << 20) is tokens


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_changes_the_order_in_memory_and_nothing_else(channels):
    def cnn():
        return nn.Sequential(
            nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        ).double()

    examples = exact(channels)
    runner = engine("loop", cnn, examples)
    inputs, _ = examples.take(torch.arange(5))
    arranged = runner.task.arranged(inputs)
    assert torch.equal(arranged, inputs)
    assert arranged.stride() == (64 * channels, 1, 8 * channels, channels)
    fast = trained(runner, ALGORITHMS["fedavg"](), Sgd())
    plain = engine("loop", cnn, examples)
    plain.task.arranged = lambda images: images
    for a, b in zip(fast, trained(plain, ALGORITHMS["fedavg"](), Sgd()), strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@dataclass(frozen=True, kw_only=True)
class Halved(FedProx):
    """A direction of its own that is wrong for a stack: it does not say that it stacks."""

    def direction(self, grad, y, k, down, mine):
        return grad / len(grad)


def test_who_overrides_a_direction_must_say_again_that_it_stacks():
    for algorithm, expected in ((FedProx(), True), (Halved(), False)):
        assert algorithm.is_stacked("direction") is expected
    agree(mlp, Halved(), Sgd())


class Spare(nn.Module):
    """A model with a parameter that it does not use."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.net = mlp()

    def forward(self, inputs):
        return self.net(inputs)


def test_a_parameter_that_is_not_used_stays_where_it_is():
    ready = images().prepared(1 << 20)
    updates = [
        sent for sent in trained(engine("loop", Spare, ready), FedAvg(), Sgd()) if sent.dim() > 1
    ]
    assert updates
    for sent in updates:
        assert (sent[:, :2] == 0).all()
        assert (sent[:, 2:] != 0).any()


class Whole(NamedTuple):
    """An upload that is no more than the model itself."""

    y: Tensor


@dataclass(frozen=True, kw_only=True)
class SendsAll(FedAvg):
    """Clients send and keep the very tensor that they trained."""

    def memory(self, down):
        return Whole(down.x)

    @stacked
    def report(self, y, walk, down, mine):
        return Whole(y), Whole(y)


def test_models_that_are_sent_as_they_are_do_not_change_later():
    """The compiled engine trains in the same place round after round, unless somebody keeps it."""
    runner, algorithm = engine("compiled", mlp, images().prepared(1 << 20)), SendsAll()
    ids, x = np.arange(len(SIZES)), runner.task.initial.x
    steps = runner.data.steps(0, ids)

    def sent(t):
        down = Model(x + t, {})
        result = train_cohort(runner, algorithm, Sgd(), 0.1, down, {}, ids, steps, t)
        runner.keep(result, ids)
        return result.up.y

    with closing(runner):
        first = sent(0)
        before = first.clone()
        second = sent(1)
        kept = runner.memory.take(ids, Row(Whole(x), Nothing(), {})).mine.y
    assert torch.equal(first, before)
    assert torch.equal(kept, second)
    assert not torch.allclose(first, second)


@dataclass(frozen=True, kw_only=True)
class HeldBack(Continuous):
    """A wrapper with a direction and a rate of its own."""

    def direction(self, grad, y, k, down, mine):
        return grad / 2

    def rate(self, lr, down, mine):
        return lr / 2


@pytest.mark.parametrize(
    "algorithm", [HeldBack(), HeldBack(of=FedProx()), Continuous(of=FedProx())]
)
def test_wrappers_with_something_of_their_own_are_the_loop_everywhere(algorithm):
    agree(mlp, algorithm, Sgd())


def test_rounds_with_a_teacher_are_one_call(monkeypatch):
    """Nothing is vmapped, and no gradient is asked for by itself."""

    def never(*arguments):
        raise AssertionError("this round is not compiled whole")

    ready = images().prepared(1 << 20)
    compiled, other = (engine("compiled", mlp, ready) for _ in range(2))
    monkeypatch.setattr(Vectorised, "train", never)
    assert trained(compiled, Continuous(of=FedProx()), Sgd(momentum=0.9))
    with pytest.raises(AssertionError, match="not compiled whole"):
        trained(other, Continuous(loss="relation"), Sgd())


class Remembers(nn.Module):
    """Keeps means of what passes through it, without a thought of gradients."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("centre", torch.zeros(3))
        self.register_buffer("past", torch.zeros(3))

    def forward(self, inputs):
        out = self.net(inputs) - self.centre - 0.1 * self.past
        self.centre.mul_(0.9).add_(0.1 * out.mean(0))
        self.past.add_(self.net[3].bias)
        return out


def test_buffers_carry_nothing_from_step_to_step_but_their_values():
    """Plain SGD goes parameter by parameter; a direction of its own takes the way by one vector."""
    plain, own = (
        trained(engine("loop", lambda: Remembers().double(), exact()), a, Sgd())
        for a in (FedAvg(), Same())
    )
    for mine, theirs in zip(plain, own, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)


@dataclass(frozen=True, kw_only=True)
class Same(FedAvg):
    """FedAvg, but nobody can know."""

    def direction(self, grad, y, k, down, mine):
        return grad * 1


class Standardised(nn.Conv2d):
    """Weight standardisation, which looks at its weights as rows."""

    def forward(self, inputs):
        rows = self.weight.view(len(self.weight), -1)
        weight = (rows - rows.mean(1, keepdim=True)).view_as(self.weight)
        return self._conv_forward(inputs, weight, self.bias)


def convolutions(first=nn.Conv2d):
    return nn.Sequential(
        first(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3),
        nn.Flatten(),
        nn.Linear(5, 3),
    )


@pytest.mark.parametrize("first", [nn.Conv2d, Standardised])
def test_convolutions_parameter_by_parameter(first):
    plain, own = (
        trained(engine("loop", lambda: convolutions(first).double(), exact()), a, Sgd())
        for a in (FedAvg(), Same())
    )
    for mine, theirs in zip(plain, own, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)


def test_engines_rewrite_sequences_of_layers_and_tasks_do_not():
    def sequences(task):
        parts = task.structure.modules()
        return {type(part) is nn.Sequential for part in parts if isinstance(part, nn.Sequential)}

    assert sequences(Task(convolutions())) == {True}
    assert sequences(engine("loop", convolutions, images()).task) == {False}


def test_buffers_of_a_chain_stay():
    def build():
        net = mlp()
        net.register_buffer("made", torch.tensor([4.0, 2.0]))
        return net

    ready, ids = images().prepared(1 << 20), np.arange(3)
    for kind in ENGINES:
        with closing(engine(kind, build, ready)) as runner:
            x, buffers = runner.task.initial
            steps = runner.data.steps(0, ids)
            done = train_cohort(runner, FedAvg(), Sgd(), 0.1, Model(x, {}), buffers, ids, steps, 0)
        assert done.buffers["made"].tolist() == [[4, 2]] * 3
