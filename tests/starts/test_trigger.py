"""When a new start is worth its cost."""

import math

import numpy as np
import pytest
import torch

from fedtide.core.types import Model, Session
from fedtide.starts import TRIGGERS
from fedtide.starts.newcomers import Newcomers
from fedtide.starts.trigger import Always, Drop, Era, Signature, Situation, Turnover, Watch


def era(*clients, first=0, accuracy=0.0, peak=0.0):
    return Era(1, first, np.array(clients), credit=accuracy, peak=peak)


def change(then, *now, t=10, first=10, drift=None, losses=None):
    return Situation(t, then, Session(2, np.array(now, dtype=int), first, 5), drift, losses)


@pytest.mark.parametrize(
    ("then", "now", "share"),
    [
        ((1, 2, 3), (1, 2, 3), 0.0),
        ((1, 2, 3), (2, 3, 4), 0.5),  # 1 and 4 of 1, 2, 3, 4
        ((1, 2), (3,), 1.0),
        ((1, 2), (), 1.0),
    ],
)
def test_turnover(then, now, share):
    assert change(era(*then), *now).turnover == pytest.approx(share)


def test_always_answers_every_change_and_every_announced_session():
    assert Always().is_due(change(era(1, 2), 1, 2, 3))
    assert Always().is_due(change(era(1, 2), 1, 2))  # the same clients, but a new session
    assert not Always().is_due(change(era(1, 2), 1, 2, t=11))


def test_small_changes_add_up():
    """One client in three per change: 2/4 after the first, 4/5 after the second."""
    trigger = Turnover(share=0.8)
    assert not trigger.is_due(change(era(1, 2, 3), 2, 3, 4))
    assert trigger.is_due(change(era(1, 2, 3), 3, 4, 5))
    assert not trigger.is_due(change(era(1, 2, 3), 1, 2, 3))  # all are back


def test_a_trigger_rests():
    trigger = Turnover(share=0.5, rest=4)
    before = era(1, 2, first=8)
    assert not trigger.is_due(change(before, 3, 4, t=10))
    assert trigger.is_due(change(before, 3, 4, t=12))  # two rounds later the change is still there
    assert not trigger.is_due(change(before, 3, 4, t=13))  # no news any more
    assert not Always(rest=4).is_due(change(before, 3, t=10))
    assert Always(rest=4).is_due(change(before, 3, t=12))


def test_nobody_needs_no_start():
    for trigger in (Always(), Turnover(), Drop()):
        assert not trigger.is_due(change(era(1, 2, accuracy=0.1, peak=0.9)))


def test_drop_listens_in_every_round():
    fallen = era(1, 2, accuracy=0.6, peak=0.9)
    assert Drop(by=0.25).is_due(change(fallen, 3, 4, t=13))
    assert not Drop(by=0.35).is_due(change(fallen, 3, 4, t=13))
    assert not Drop(by=0.25).is_due(change(fallen, 1, 2, t=13))  # no other clients: not their doing


def test_a_drop_is_from_the_peak_of_this_era():
    now = Era(1).after(0.5).after(0.9).after(0.7)
    assert (now.credit, now.peak) == (0.7, 0.9)


class Drift:
    """A drift that is always the same; it notes how many clients are asked."""

    def __init__(self, drift):
        self.drift, self.asked = drift, []

    def __call__(self, clients):
        self.asked.append(clients)
        return self.drift


def looked(trigger, then, *now, t=10, drift=None):
    """Whether a start is due, and what the trigger knows after its look."""
    situation = change(then, *now, t=t, first=t, drift=drift)
    then = then._replace(watch=trigger.watch(situation))
    return trigger.is_due(situation._replace(era=then)), then


def test_the_signature_costs_something_only_where_clients_changed():
    trigger, drift = Signature(by=0.7, clients=4, share=0.5), Drift(1.0)
    assert not looked(trigger, era(1, 2, 3), 1, 2, drift=drift)[0]
    assert drift.asked == []
    assert looked(trigger, era(1, 2, 3), 4, 5, drift=drift)[0]
    assert not looked(Signature(by=1.1), era(1), 2, drift=drift)[0]
    assert drift.asked == [4, 0]


def test_the_signature_is_looked_at_again_after_further_changes_only():
    """Since the look in round 10, at clients 4 and 5, nothing changed in round 11; then client 6 came."""
    trigger, drift = Signature(share=0.3), Drift(0.0)
    due, then = looked(trigger, era(1, 2, 3), 5, 4, drift=drift)
    for t, now in ((11, (4, 5)), (12, (4, 5, 6))):
        due, then = looked(trigger, then, *now, t=t, drift=drift)
    assert not due
    assert (len(drift.asked), then.watch.looks, then.watch.t) == (2, 2, 12)


def test_a_pilot_has_no_signature():
    assert Signature().facts(Watch(result=math.inf)) == {}
    assert Signature().facts(Watch(result=0.25)) == {"signature_fall": 0.25}


def test_the_names_of_the_triggers():
    assert list(TRIGGERS) == ["auto", "always", "turnover", "drop", "signature", "newcomers"]


def test_an_archived_model_belongs_to_the_clients_of_its_gradient():
    """Most of the clients 1, 2, 3 that computed G are gone at the second change: that model stays."""
    first = era(1, 2, 3)._replace(gradient=torch.ones(2))
    one, two, three = (Model(torch.full((2,), float(n)), {}) for n in (1, 2, 3))
    assert first.changed(np.array([2, 3]), one).over(two).model is two
    late = first.changed(np.array([2, 3]), one).changed(np.array([3, 4]), two)
    assert late.changed(np.array([4]), three).over(three).model is two
    assert era(1, 2, 3).changed(np.array([4]), one).over(two).model is two  # without a gradient


def test_reasons():
    some = change(era(1, 2, 3), 2, 3, 4)
    assert Turnover().reason(some) == "50% of the clients came or went since the last start"
    same = change(era(1, 2), 1, 2)
    assert Always().reason(same) == "a session began with the same clients"
    fallen = change(era(1, 2, accuracy=0.5, peak=0.8), 3)
    assert Drop().reason(fallen) == (
        "clients came or went, and training accuracy fell from 80.0% to 50.0%"
    )
    worse = change(era(1, accuracy=-2.5, peak=-1.0), 3)
    assert Drop().reason(worse) == "clients came or went, and the training loss rose from 1 to 2.5"
    watched = some._replace(era=some.era._replace(watch=Watch(t=10, result=0.01)))
    assert Signature().reason(watched).endswith("is 0.01 lower than chance explains")
    assert Newcomers().reason(watched).endswith("higher than of those before, p = 0.01")
