"""Lines of the journal: how they are made, and that every key of a run is declared and described."""

import importlib.util
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest

from fedtide.config import study
from fedtide.core.types import Phases, Plan, Session, Work
from fedtide.record.line import KEY_GROUPS, Line, added, begun, billed, leaves, received
from fedtide.run.loop import run

ROOT = Path(__file__).parent.parent.parent
WORK = Work(np.array([4, 4, 0]), np.ones(3, dtype=int), 1, 20, 10, 7)


def plan(**more):
    """Client 5 does not deliver, client 6 has no data."""
    steps, numbers = np.array([4, 2, 0]), np.array([1.0, 3.0, 0.0])
    return Plan(steps, numbers, 2 * numbers, np.array([True, False, True]), **more)


def test_a_round_that_begins():
    session = Session(number=2, clients=np.arange(9), first=10, rounds=5)
    line = begun(12, session, np.array([4, 5, 6]), plan(), WORK, 0.1)
    assert (line["t"], line["session"], line["round_in_session"]) == (12, 2, 2)
    assert (line["population"], line["cohort"], line["absent"]) == (9, 1, 2)
    assert (line["clients"], line["stragglers"]) == ([4], [5])
    assert (line["steps"], line["bytes_down"], line["bytes_up"]) == (4, 20, 10)
    assert (line["latency"], line["joules"], line["lr"]) == (1.0, 8.0, 0.1)
    assert line["accuracy"] is line["train_loss"] is None
    assert "seconds_by_phase" not in line


def test_phases_are_means_of_seconds_and_sums_of_joules():
    parts = Phases(np.array([1.0, 2.0, 0.0]), np.array([3.0, 5.0, 0.0]), np.zeros(3))
    session = Session(0, np.arange(9), 0, 5)
    known = plan(seconds_by=parts, joules_by=parts)
    line = begun(0, session, np.array([4, 5, 6]), known, WORK, 0.1)
    assert line["seconds_by_phase"] == {"down": 1.5, "compute": 4.0, "up": 0.0}  # of two clients
    assert line["joules_by_phase"] == {"down": 3.0, "compute": 8.0, "up": 0.0}


def test_clients_that_are_lost_send_nothing():
    line = {"cohort": 3, "clients": [4, 5, 6], "bytes_up": 30, "bytes_down": 60}
    assert received(line, np.array([4, 5, 6]), WORK) == line
    lost = {"cohort": 2, "clients": [4, 6], "bytes_up": 20, "bytes_down": 60, "lost": 1}
    assert received(line, np.array([4, 6]), WORK) == lost


def test_a_bill_is_added_to_the_costs_of_the_round():
    line = {"t": 0, "steps": 4, "latency": 1.5}
    assert billed(line, {"steps": 3, "gradient_rounds": 2}) == {
        "t": 0, "steps": 7, "latency": 1.5, "gradient_rounds": 2
    }  # fmt: skip
    assert added(line, {"t": 1, "q": 0.5}) == {"t": 1, "steps": 4, "latency": 1.5, "q": 0.5}
    assert line == {"t": 0, "steps": 4, "latency": 1.5}  # the line given is left as it is


def test_leaves_of_a_line():
    line = {"t": 1, "clients": [3], "seconds": {"train": 0.5}, "a": {"b": {"c": None}}, "d": {}}
    assert list(leaves(line)) == [
        (("t",), 1),
        (("clients",), [3]),
        (("seconds", "train"), 0.5),
        (("a", "b", "c"), None),
    ]


def test_the_groups_are_the_bases_of_a_line():
    keys = [name for group in KEY_GROUPS for name in get_type_hints(group)]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(get_type_hints(Line))


def fits(value, hint):
    """Is a value of this type? Whole numbers count as numbers, as in JSON."""
    inside = get_args(hint)
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        return value.keys() <= hints.keys() and all(fits(value[k], hints[k]) for k in value)
    if get_origin(hint) is list:
        return type(value) is list and all(fits(item, inside[0]) for item in value)
    if get_origin(hint) is dict:
        return all(type(key) is str and fits(item, inside[1]) for key, item in value.items())
    if get_origin(hint) is UnionType:
        return any(fits(value, each) for each in inside)
    return hint is Any or type(value) is hint or (type(value), hint) == (int, float)


BASE = {
    "population": {"kind": "alternating", "clients": 4, "sessions": 3, "rounds": 2},
    "train": {"steps": 1},
}
RUNS = {
    "fast": {"participation": {"kind": "fast", "of": {"kind": "bernoulli", "rate": 0.5}, "q": 0.5}},
    "start": {"start": {"kind": "similarity"}},
    "soup": {"start": "soup"},
    "signature": {"start": {"kind": "similarity", "trigger": "signature"}},
    "newcomers": {"start": {"kind": "soup", "trigger": "newcomers"}},
    "untested": {"start": {"kind": "average"}},
    "probes": {
        "algorithm": "fedagg",
        "train": {"epochs": 1},
        "evaluation": {"probes": ["rates", "drift", "movement", "shift"], "fairness": True},
    },
    "osafl": {"algorithm": "osafl", "network": "wireless"},
    "diverged": {"train": {"steps": 1, "lr": 1e30}, "evaluation": {"diverged": "warn"}},
    "guard": {
        "faults": {"crash": 0.3, "slow": 0.3, "lost_upload": 0.3, "corrupt": 0.3},
        "attack": {"kind": "sign-flip", "share": 0.3},
        "defence": {"kind": "trimmed-mean", "share": 0.3},
    },
    "privacy": {
        "algorithm": {"kind": "fedavg", "weights": "equal"},
        "faults": {"lost_upload": 0.3},
        "privacy": {"clip": 1.0, "noise": 1.0},
    },
    "anew": {"algorithm": "scaffold", "defence": "median"},
    "task": {
        "population": {"kind": "fixed", "clients": 4, "rounds": 2},
        "task": {"kind": "regression", "metrics": ["r2", "loss"]},
    },
}
ELSEWHERE = {"late", "failed", "forgot", "epsilon"}  # only with real clients


@pytest.mark.filterwarnings("ignore:TrimmedMean:RuntimeWarning")
def test_every_key_of_a_run_is_declared_with_its_type():
    hints, seen = get_type_hints(Line), set()
    for name, table in RUNS.items():
        for line in run(study(name, {**BASE, **table}).runs[0].experiment).rounds:
            seen |= line.keys()
            for key, value in line.items():
                assert key in hints, (name, key)
                assert fits(value, hints[key]), (name, key, value)
    assert hints.keys() - seen == ELSEWHERE


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("journal_keys", ROOT / "docs/journal_keys.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = made.PAGE.read_text(encoding="utf-8")
    assert text == made.page(text), "run: python docs/journal_keys.py"
