"""Algorithms that look at all of a client's data: FedAgg on every engine against a plain retelling."""

from functools import cache

import numpy as np
import pytest
import torch
from torch.func import grad

from fedtide.algorithms.base import Context
from fedtide.algorithms.fedagg import FedAgg
from fedtide.algorithms.fedgh import FedGH
from fedtide.algorithms.parts.meanfield import Terms
from fedtide.algorithms.parts.readings import EarlierTerms, Pretrain
from fedtide.core.types import Cohort
from fedtide.data.batches import Batching
from fedtide.training.optimisers import Sgd
from tests.conformance.arena import COHORTS, RULES, World, assert_same, drive
from tests.worlds import train_cohort

KINDS = ["loop", "vectorised"]
kinds = pytest.mark.parametrize("kind", KINDS)
EPOCHS = 3
# Clients of 3 to 15 examples make 1 to 4 steps per epoch, so their epochs begin at different steps.
WORLD = World("plain", batching=Batching(batch_size=4, epochs=EPOCHS), dtype=torch.float64)
STEP = {"epoch": "step", "reach": 0}
ALGORITHM = FedAgg(alpha=0.1, floor=0.03, cap=0.2, **STEP)
LR = 0.05


def rates(terms, u, now, alpha):
    """The linear system of the remaining rates, entry by entry."""
    c, epochs = (1 - alpha) / alpha, len(terms[0])
    (phi1, d), left = terms, range(now, epochs)
    system, right = np.zeros((len(left), len(left))), np.zeros(len(left))
    for i, r in enumerate(left):
        system[i, i] += 1
        for j, p in enumerate(left):
            times = epochs - r if p < r else epochs - p
            system[i, j] += c * times * float(phi1[r] @ phi1[p])
        right[i] = c * float(phi1[r] @ ((epochs - r) * u - d[r:].sum(0)))  # phi2_k = w + d_k
    return np.linalg.solve(system, right)


@cache
def retold():
    """FedAgg as the issue tells it, client by client; the rates and models of all rounds."""
    engine = WORLD.engine("loop")
    task, data = engine.task, engine.data
    x, terms, story = task.initial.x, None, []

    def loss(y, batch):
        each = task.losses(task.view(y, {}, batch.inputs).logits, batch.targets)
        return (each * batch.mask).sum() / batch.mask.sum()

    for t, members in enumerate(COHORTS):
        ids = np.array(members)
        picks = data.picks(t, ids, data.steps(t, ids), "batch")
        ends, used, g, d = [], [], [], []
        for u, client in enumerate(members):
            y, stride = x, -(-WORLD.sizes[client] // 4)
            everything = data.holdings.held(t, np.array([client]))
            whole = engine.batch(everything, np.ones(len(everything), dtype=bool))
            used.append([]), g.append([]), d.append([])
            for epoch in range(EPOCHS):
                g[u].append(grad(loss)(y, whole))
                best = LR if terms is None else rates(terms, y - x, epoch, ALGORITHM.alpha)[0]
                used[u].append(min(max(best, ALGORITHM.floor), ALGORITHM.cap))
                for k in range(epoch * stride, (epoch + 1) * stride):
                    batch = engine.batch(picks.places[u, k], picks.mask[u, k])
                    y = y - used[u][-1] * grad(loss)(y, batch)
                d[u].append(y - x)
            ends.append(y)
        share = np.array([WORLD.sizes[client] for client in members])
        x = sum(n / share.sum() * y for n, y in zip(share, ends, strict=True))
        g, d = (torch.stack([torch.stack(part) for part in parts]) for parts in (g, d))
        terms = Terms(g.mean(0), d.mean(0))
        story.append((np.array(used), x, terms))
    engine.close()
    return story


@pytest.mark.portable
@kinds
def test_fedagg_is_what_the_issue_tells(kind):
    """Unequal sizes, partial participation, newcomers who use terms they had no part in."""
    engine, server = WORLD.engine(kind), None
    server = ALGORITHM.init(engine.task.initial.x, Context(engine.task.layout, 9))
    for (used, x, terms), (t, members) in zip(retold(), enumerate(COHORTS), strict=True):
        server, up = one_round(engine, ALGORITHM, server, members, t)
        torch.testing.assert_close(up.eta, torch.from_numpy(used), atol=1e-10, rtol=0)
        torch.testing.assert_close(server.x, x, atol=1e-10, rtol=0)
        for mine, theirs in zip(server.terms, terms, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=0)
    engine.close()


def test_the_story_is_worth_telling():
    """Some rates lie between the bounds, some on them, and clients differ after the first epoch."""
    used = np.concatenate([rates for rates, _, _ in retold()[1:]])
    inside = (used > ALGORITHM.floor) & (used < ALGORITHM.cap)
    assert 0 < inside.sum() < inside.size
    assert np.ptp(used[:4, 0]) < 1e-12  # all begin at the same model
    assert np.ptp(used[:4, 1:]) > 1e-3


def one_round(engine, algorithm, server, members, t, steps=None):
    ids = np.array(members)
    sizes = engine.data.holdings.sizes(t, ids)
    steps = engine.data.steps(t, ids) if steps is None else np.array(steps)
    down = algorithm.broadcast(server)
    done = train_cohort(engine, algorithm, Sgd(), LR, down, {}, ids, steps, t)
    share = torch.from_numpy(sizes / sizes.sum())
    cohort = Cohort(torch.from_numpy(ids), share, done.walk, len(WORLD.sizes), t)
    return algorithm.aggregate(server, done.up, cohort), done.up


VARIANTS = {
    "history": ALGORITHM,
    "default": FedAgg(),
    "every other round": FedAgg(alpha=0.3, cap=0.3, reading=EarlierTerms(every=2), **STEP),
    "layers": FedAgg(alpha=0.3, cap=0.3, terms="layers", **STEP),
    "pretrain": FedAgg(alpha=0.3, cap=0.3, reading=Pretrain(iterations=2), **STEP),
    "fedgh": FedGH(head_steps=2),
}


# Optimisers do not see what a survey found: every variant with one of them, and all of them with FedAgg's
# rates, which change the length of their steps, and with FedGH's survey after the last step.
SURVEYED = [(variant, "momentum") for variant in VARIANTS]
SURVEYED += [("history", rule) for rule in RULES if rule != "momentum"] + [("fedgh", "carried")]


@pytest.mark.portable
@pytest.mark.parametrize(("variant", "rule"), SURVEYED)
def test_engines_agree_over_several_epochs(variant, rule):
    loop, vectorised, chunked = (
        drive(WORLD.engine(kind, chunk=chunk), VARIANTS[variant], RULES[rule], COHORTS * 2)
        for kind, chunk in (("loop", 0), ("vectorised", 0), ("vectorised", 3))
    )
    assert_same(loop, vectorised, 1e-9)
    assert_same(loop, chunked, 1e-9)


@kinds
def test_a_client_cut_short_stands_still(kind):
    """Client 3 makes 3 steps per epoch; after 4 steps it is in its second epoch and stays there."""
    engine = WORLD.engine(kind)
    server = ALGORITHM.init(engine.task.initial.x, Context(engine.task.layout, 9))
    _, up = one_round(engine, ALGORITHM, server, (3, 7), 0, steps=[4, 12])
    phi1, d = up.phi1[0], up.d[0]
    assert not torch.equal(phi1[0], phi1[1])
    assert torch.equal(phi1[1], phi1[2])
    assert not torch.equal(d[0], d[1])
    assert torch.equal(d[1], up.delta[0])
    assert torch.equal(d[2], up.delta[0])
    engine.close()


@kinds
def test_a_survey_sees_every_example_once(kind):
    """The gradient of the whole is the mean over examples, whatever the batches; dropout is asleep."""
    world = World("dropout", batching=Batching(batch_size=4, epochs=1), dtype=torch.float64)
    engine = world.engine(kind)
    algorithm, x = ALGORITHM, engine.task.initial.x
    server = algorithm.init(x, Context(engine.task.layout, 9))
    _, up = one_round(engine, algorithm, server, (0, 4), 0)
    for u, client in enumerate((0, 4)):
        everything = engine.data.holdings.held(0, np.array([client]))
        batch = engine.batch(everything, np.ones(len(everything), dtype=bool))

        def loss(y, batch=batch):
            return engine.task.losses(
                engine.task.view(y, {}, batch.inputs).logits, batch.targets
            ).mean()

        torch.testing.assert_close(up.phi1[u, 0], grad(loss)(x), atol=1e-12, rtol=0)
    engine.close()


@kinds
def test_prototypes_are_mean_features_at_the_end(kind):
    engine = WORLD.engine(kind)
    algorithm, layout = FedGH(), engine.task.layout
    server = algorithm.init(engine.task.initial.x, Context(layout, 9))
    _, up = one_round(engine, algorithm, server, (0, 7), 0)
    for u, client in enumerate((0, 7)):
        inputs, targets = engine.data.examples.take(
            torch.from_numpy(engine.data.holdings.held(0, np.array([client])))
        )
        # the client's own head is not sent, and features do not depend on it
        y = torch.cat([server.body + up.delta[u], server.head])
        features = engine.task.view(y, {}, inputs).features
        for label in range(3):
            member = targets == label
            assert up.prototypes.held[u, label] == float(member.any())
            expected = features[member].mean(0) if member.any() else torch.zeros(8).double()
            torch.testing.assert_close(up.prototypes.mean[u, label], expected, atol=1e-12, rtol=0)
    engine.close()
