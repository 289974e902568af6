"""The trigger "newcomers", and what "auto" stands for."""

import json

import numpy as np
import pytest

from fedtide import Data, Evaluation, Experiment, Privacy, Train, config, run
from fedtide.core import types
from fedtide.core.types import Session
from fedtide.population.arrivals import Poisson
from fedtide.population.live import Live
from fedtide.population.sessions import Alternating
from fedtide.record.checkpoint import Stopped
from fedtide.run.execute import run_study
from fedtide.starts.cold import Cold
from fedtide.starts.newcomers import AutoTrigger, Newcomers, higher, student_tail
from fedtide.starts.previous import Previous
from fedtide.starts.soup import Soup
from fedtide.starts.trigger import Always, Era, Situation, Turnover, Watch

stats = pytest.importorskip("scipy.stats", reason="the reference for p-values is scipy")


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 9, 40])
@pytest.mark.parametrize("t", [-2.0, 0.0, 0.7, 3.0, 8.0])
def test_the_tail_of_the_t_distribution(t, freedom):
    assert student_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-6, abs=1e-12)


def test_the_comparison_of_means_agrees_with_scipy():
    rng = np.random.default_rng(1)
    one, other = rng.normal(0.5, 2, 12), rng.normal(0, 1, 30)
    reference = stats.ttest_ind(one, other, alternative="greater")
    assert higher(one, other) == pytest.approx(reference.pvalue, rel=1e-9)


def test_equal_numbers():
    assert higher(np.ones(3), np.ones(4)) == 1.0
    assert higher(np.full(3, 2.0), np.ones(4)) == 0.0


def reply(losses):
    """What clients with these losses answer to a test."""
    ids = np.array(sorted(losses))
    return types.Tested(ids, np.array([[losses[u] for u in ids]]), np.ones(len(ids)))


def situation(era, t, answers, first=None):
    session = Session(t, np.array(sorted(answers)), t if first is None else first, 5)
    return Situation(t, era, session, lambda clients: 0.0, lambda clients: reply(answers))


def after(era, t, answers):
    return era._replace(watch=Newcomers().watch(situation(era, t, answers)))


def test_the_loss_of_a_client_that_left_moves_with_those_that_stayed():
    """Clients 1 and 2 improve by 0.3 and 0.5; client 3, which left with 2.0, is taken to have 1.6 now."""
    era = after(Era(1, 0, np.array([1, 2, 3])), 1, {1: 1.0, 2: 1.5, 3: 2.0})
    watch = after(era, 2, {1: 0.7, 2: 1.0, 7: 0.1}).watch
    assert dict(zip(watch.ids, watch.losses, strict=True)) == pytest.approx(
        {1: 0.7, 2: 1.0, 3: 1.6}
    )


def test_newcomers_belong_to_the_reference_after_some_rounds():
    """Client 3 left and 7 came: from the test of round 1, five rounds later, 7 replaces 3."""
    era = after(Era(1, 0, np.array([1, 2, 3])), 1, {1: 1.0, 2: 1.5, 3: 2.0})
    era = after(era, 5, {1: 0.7, 2: 1.0, 7: 0.1})
    assert era.watch.ids.tolist() == [1, 2, 3]
    era = after(era, 6, {1: 0.6, 2: 0.9, 7: 0.2})
    assert (era.watch.ids.tolist(), era.watch.since) == ([1, 2, 7], 6)


def test_clients_of_the_last_start_that_return_are_newcomers_to_the_model():
    """Group A left, B trained the model for a while, A returns with losses that are no longer low."""
    era = Era(1, 0, np.arange(10))
    a, b = (
        {u: loss + 0.1 * (u % 3) for u in ids}
        for loss, ids in ((1.0, range(10)), (1.0, range(10, 20)))
    )
    for t, answers in ((1, a), (7, b), (12, b), (13, {u: 9.0 + 0.1 * (u % 3) for u in range(10)})):
        era = after(era, t, answers)
    assert Newcomers().fires(situation(era, 13, {0: 9.0}))


def test_it_fires_only_when_newcomers_are_worse_off():
    known = {u: 1 + 0.1 * (u % 3) for u in range(10)}
    era = after(Era(1, 0, np.arange(10)), 1, known)
    for loss, fires in ((1.0, False), (0.2, False), (3.0, True)):
        answers = {u: loss + 0.1 * (u % 3) for u in range(20, 28)}
        now = after(era, 2, answers)
        assert Newcomers().fires(situation(now, 2, answers)) == fires
    assert now.watch.looks == 1


def test_later_comparisons_need_more_evidence():
    """The levels 0.05 / (k (k + 1)) add up to 0.05 over all comparisons k."""
    assert sum(0.05 / (k * (k + 1)) for k in range(1, 10**5)) == pytest.approx(0.05, rel=1e-4)
    for looks, fires in ((1, True), (2, True), (3, False)):  # 0.025, 0.0083, 0.0042
        era = Era(1, 0, np.arange(3), watch=Watch(4, looks=looks, result=0.008))
        assert Newcomers().fires(situation(era, 4, {1: 0.0})) == fires


def test_no_test_in_a_round_without_news():
    era = after(Era(1, 0, np.arange(3)), 4, {0: 1.0, 1: 1.0, 2: 1.0})
    quiet = situation(era, 6, {0: 9.0, 1: 9.0, 2: 9.0}, first=4)
    assert Newcomers(every=3).watch(quiet) is era.watch
    assert Newcomers(every=2).watch(quiet).t == 6


def test_nobody_answers():
    era = Era(1, 0, np.arange(3))
    empty = types.Tested(np.arange(0), np.empty((1, 0)), np.empty(0))
    assert (
        Newcomers().watch(situation(era, 1, {0: 1.0})._replace(losses=lambda n: empty)) is era.watch
    )


def study(**settings):
    parts = {
        "data": Data(name="digits"),
        "population": Poisson(clients=20, present=12, stay=30, opening=6, tide=12, rounds=24),
        "train": Train(model="linear", lr=0.1, batch_size=32, epochs=1),
        "evaluation": Evaluation(every=6),
        "start": Soup(),
    }
    return Experiment(**(parts | settings))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, Newcomers),
        ({"population": Live(clients=3)}, Newcomers),
        ({"population": Alternating(clients=5, sessions=2)}, Always),
        ({"start": Previous()}, Always),  # nothing needs to be asked of clients
        ({"start": Cold(), "privacy": Privacy(clip=1.0, noise=1.0)}, Turnover),
    ],
)
def test_what_auto_stands_for(settings, kind):
    assert type(study(**settings).start.trigger) is kind


def test_auto_keeps_its_rest():
    assert study(start=Soup(trigger=AutoTrigger(rest=7))).start.trigger.rest == 7


def test_a_run_in_which_another_group_takes_over():
    """All clients leave in rounds 6 and 18, and clients with other labels come: a start each."""
    lines = run(study()).rounds
    assert [line["t"] for line in lines if "start" in line] == [0, 6, 18]
    assert all(line["newcomers_p"] < 0.05 for line in lines if line["t"] in (6, 18))
    assert lines[1]["test_answers"] > 0
    assert lines[1]["newcomers_p"] == 1.0


class StopAfter:
    """Wants to stop once it has been asked so often."""

    def __init__(self, times):
        self.left = times

    def __call__(self):
        self.left -= 1
        return self.left < 0


STUDY = """
[data]
name = "digits"
[population]
kind = "poisson"
clients = 20
present = 12
opening = 6
tide = 12
rounds = 24
[start]
kind = "soup"
[train]
model = "linear"
epochs = 1
[checkpoint]
rounds = 1
"""


@pytest.mark.parametrize("stopped", [6, 12, 18])  # in rounds 6 and 18 there is a start
def test_the_numbers_of_a_trigger_are_in_a_checkpoint(stopped, tmp_path):
    """Stopped before this round and continued, a run makes the same tests and starts and ends the same."""
    (tmp_path / "tide.toml").write_text(STUDY)
    plan = config.load(tmp_path / "tide.toml")
    whole = run_study(plan, tmp_path / "whole", jobs=1)
    with pytest.raises(Stopped):
        run_study(plan, tmp_path / "parts", jobs=1, stop=StopAfter(stopped))
    parts = run_study(plan, tmp_path / "parts", jobs=1, resume=True)
    one, other = (
        [
            {**json.loads(line), "seconds": 0}
            for journal in sorted(result.folder.path.rglob("*.jsonl"))
            for line in journal.read_text().splitlines()
        ]
        for result in (whole, parts)
    )
    assert one == other
    assert sum("start" in line for line in one) == 3
    models = [next(result.folder.path.rglob("model.safetensors")) for result in (whole, parts)]
    assert models[0].read_bytes() == models[1].read_bytes()
