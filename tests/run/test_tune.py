"""Searches: equal budgets, the same choices however they are run, scored on validation examples only."""

import json
import math
import signal
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide import config
from fedtide.core.errors import ConfigError, TrainingError
from fedtide.core.types import Examples
from fedtide.measure.searched import searched
from fedtide.record.journal import read
from fedtide.run.execute import run_study
from fedtide.run.proposals import EVENLY, evenly, proposed
from fedtide.run.ranges import Between, OneOf, changed, checked, read_range, value_of
from fedtide.run.trial import ENOUGH, Trial, bars
from fedtide.run.tune import tune_study
from tests.run.test_broken_off import PATIENCE, start

STUDY = """
[data]
partition = { kind = "dirichlet", alpha = 0.1 }
[population]
kind = "fixed"
clients = 6
rounds = 8
[train]
steps = 2
[tune]
trials = 10
train.lr = { low = 0.001, high = 1000, log = true }
[[case]]
name = "FedAvg"
[[case]]
name = "FedProx"
algorithm = "fedprox"
tune.algorithm.mu = { low = 0.001, high = 10, log = true }
[compare]
seed = [1, 2]
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("tune") / "small.toml"
    found.write_text(STUDY)
    return found


@pytest.fixture(scope="module")
def tuned(path):
    return tune_study(config.load(path), path.parent / "runs", jobs=1)


def history(tuned):
    """Everything that a search found but times."""
    cells = json.loads(json.dumps(tuned.as_json()["cells"]))
    for cell in cells:
        for trial in cell["trials"]:
            del trial["seconds"]
    return cells


def test_every_method_has_the_same_budget(tuned):
    for cell in tuned.as_json()["cells"]:
        assert [trial["number"] for trial in cell["trials"]] == list(range(10))
        ended = Counter(trial["ended"] for trial in cell["trials"])
        assert ended["finished"] >= ENOUGH
        assert ended["diverged"] >= 1  # a learning rate of a thousand
        whole = {trial["updates"] for trial in cell["trials"] if trial["ended"] == "finished"}
        assert whole == {6 * 8}
        best = max(trial["score"] or 0 for trial in cell["trials"])
        chosen = [t["values"] for t in cell["trials"] if t["score"] == best]
        assert cell["values"] == chosen[0]
    first = {t.number: t.values["train.lr"] for t in tuned.searches[0].trials}
    assert first[0] == 0.1  # the study's own value is tried, too


def test_trials_are_runs_on_validation_examples(tuned):
    """A trial is made anew by hand; the test examples do not matter."""
    search = tuned.searches[1]
    trial = search.best
    e = search.cell.experiment
    digits = e.data.load()
    noise = Examples(torch.zeros_like(digits.test.inputs), torch.zeros_like(digits.test.targets))
    e = replace(
        e,
        data=replace(e.data, name=replace(digits, test=noise), validation=0.1),
        algorithm=replace(e.algorithm, mu=trial.values["algorithm.mu"]),
        train=replace(e.train, lr=trial.values["train.lr"]),
        evaluation=replace(e.evaluation, on="validation"),
        seed=3,  # one more than the seeds of the study
    )
    from fedtide import run

    assert run(e).metrics()["accuracy"] == trial.score
    journal = tuned.folder / f"trials/02-case-fedprox/{trial.number:03}/seed-3/journal.jsonl"
    assert len(read(journal)) == 8


def test_the_same_choices_in_processes(path, tuned, tmp_path):
    other = tune_study(config.load(path), tmp_path, jobs=2)
    assert history(other) == history(tuned)


def test_killed_and_resumed_it_makes_the_same_choices(path, tuned, tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    process = start("tune", "small.toml", "--jobs", 1, cwd=tmp_path)
    ended = tmp_path / "runs/small/tune/1/trials"
    deadline = time.monotonic() + PATIENCE
    while len(list(ended.glob("*/*/trial.json"))) < 6:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "small-tuned.toml").exists()
    kept = {file: file.read_bytes() for file in ended.glob("*/*/trial.json")}
    assert len(kept) < 20
    study = config.load(tmp_path / "small.toml")
    resumed = tune_study(study, tmp_path / "runs", jobs=1, resume=True)
    assert resumed.folder.name == "1"
    assert history(resumed) == history(tuned)
    assert all(file.read_bytes() == content for file, content in kept.items())  # not made again


def test_resume_refuses_another_search(path, tuned):
    study = config.load(path, changes=["tune.trials=11"])
    with pytest.raises(ConfigError, match=r"tune.trials was 10, is 11"):
        tune_study(study, path.parent / "runs", jobs=1, resume=True)


def test_the_tuned_study_has_the_chosen_values(path, tuned, tmp_path):
    for name, text in config.tuned_files("small-tuned", tuned).items():
        (tmp_path / name).write_text(text)
    study = config.load(tmp_path / "small-tuned.toml")
    assert [cell.label for cell in study.cells] == ["case = FedAvg", "case = FedProx"]
    assert [cell.experiment for cell in study.cells] == [
        cell.experiment for cell in tuned.study.cells
    ]
    fedprox = study.cells[1].experiment
    assert fedprox.algorithm.mu == tuned.searches[1].best.values["algorithm.mu"]
    assert (fedprox.evaluation.on, fedprox.data.validation) == ("test", 0.0)
    assert json.loads(json.dumps(study.tuned["cells"])) == json.loads(
        json.dumps(tuned.as_json()["cells"])
    )
    outcome = run_study(study, tmp_path / "runs", jobs=1)
    report = (outcome.folder.path / "report.html").read_text()
    assert "Values were chosen by fedtide tune: 10 trials of each setting with seed 3" in report
    assert "chart-tuned_train_lr" in report
    assert outcome.results.search == searched(study.tuned)
    without = (tmp_path / "small-tuned.toml").read_text().replace('"FedProx" }', '"other" }')
    (tmp_path / "small-tuned.toml").write_text(without)
    with pytest.raises(ConfigError, match=r"tuned.cell must have the values of every setting"):
        config.load(tmp_path / "small-tuned.toml")


def test_a_budget_of_client_updates(path, tmp_path):
    study = config.load(path, changes=["tune.trials=0", "tune.updates=300", "tune.seed=[7, 8]"])
    done = tune_study(replace(study, cells=study.cells[:1]), tmp_path, jobs=1)
    trials = done.searches[0].trials
    spent = [trial.updates for trial in trials]
    assert max(spent) == 2 * 6 * 8  # two seeds
    assert sum(spent) <= 300
    assert sum(spent) + max(spent) > 300  # no room for another whole trial
    by_seed = [
        read(done.folder / f"trials/01-case-fedavg/000/seed-{s}/journal.jsonl") for s in (7, 8)
    ]
    last = [np.mean([line["accuracy"] for line in lines[-5:]]) for lines in by_seed]
    assert trials[0].score == pytest.approx(np.mean(last))


def test_a_search_in_which_nothing_finishes(path, tmp_path):
    study = config.load(path, changes=["tune.train.lr={low=1e5, high=1e9}", "train.lr=1e6"])
    study = replace(study, cells=study.cells[:1], tune=replace(study.tune, trials=0, updates=10**6))
    with pytest.raises(TrainingError, match=r"a trial of case = FedAvg must finish. Got 12 trials"):
        tune_study(study, tmp_path, jobs=1)


def test_bars_are_medians_of_enough_trials():
    trials = [
        Trial(n, {}, "finished", score, [score / 2, score], 4, 4, 0.0)
        for n, score in enumerate([0.2, 0.4, 0.6, 0.8])
    ]
    assert bars(trials[: ENOUGH - 1], 4) == [None, None, None]
    assert bars(trials, 4) == [0.25, 0.5, None]
    short = Trial(4, {}, "pruned", None, [0.0], 1, 1, 0.0)
    assert bars([*trials, short], 4) == [0.2, 0.5, None]


def test_proposals_find_an_optimum():
    """A smooth function of two settings: the estimator comes close within thirty trials."""
    ranges = {
        "a": Between(1e-4, 1, log=True),
        "b": OneOf((16, 32, 64)),
        "c": Between(1, 9, whole=True),
    }
    trials = []
    while len(trials) < 30:
        places = range(len(trials), len(trials) + 3)
        for values in proposed(ranges, trials, places, seed=1):
            score = -((math.log10(values["a"]) + 2) ** 2) - (values["b"] != 32)
            score -= abs(values["c"] - 4) / 4
            trials.append(Trial(len(trials), values, "finished", score, [], 1, 1, 0.0))
    best = max(trials, key=lambda trial: trial.score).values
    assert 0.004 < best["a"] < 0.025
    assert best["b"] == 32
    assert best["c"] in (3, 4, 5)
    assert all(isinstance(trial.values["c"], int) for trial in trials)


def test_first_trials_fill_the_ranges_evenly():
    ranges = {"a": Between(0, 1), "b": Between(1, 100, log=True)}
    points = [evenly(ranges, n, seed=5) for n in range(EVENLY)]
    for share in (
        [p["a"] for p in points],
        [math.log(p["b"]) / math.log(100) for p in points],
    ):
        assert {int(4 * x) for x in share} == {0, 1, 2, 3}  # one in each quarter at least


@pytest.mark.parametrize(
    ("key", "raw", "message"),
    [
        ("train.lr", {"low": 1, "high": 0.1}, "a range from low to a higher number"),
        ("train.lr", {"low": 0, "high": 1, "log": True}, "positive on a logarithmic scale"),
        ("train.lr", {"from": 0, "to": 1}, "with low and high, or a list"),
        ("train.lr", 0.1, "with low and high, or a list"),
        ("train.lr", [0.1], "at least two values"),
        (
            "train.lr",
            {"low": -1, "high": 1},
            r"lr: -1 is in the range, but train.lr must be a positive number",
        ),
        ("train.llr", [1, 2], "Train has no setting 'llr'. Did you mean 'lr'?"),
        ("algorithm.mu", [1, 2], "FedAvg has no setting 'mu'"),
        ("data.partition.alpha", [0.1, 1], "must be a setting of the method"),
        ("train.steps", [1, 2], "the grid of the study decides this"),
    ],
)
def test_ranges_that_do_not_fit(key, raw, message):
    table = {"train": {"steps": 1}, "compare": {"train": {"steps": [1, 2]}}, "tune": {}}
    *inner, last = key.split(".")
    place = table["tune"]
    for part in inner:
        place = place.setdefault(part, {})
    place[last] = raw
    with pytest.raises(ConfigError, match=message):
        config.study("x", table)


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"trials": 5, "updates": 5}, "tune.updates must be left out where tune.trials is set"),
        ({"at_once": 0}, "tune.at_once must be at least 1"),
        ({"score": "los"}, "tune.score: 'los' is not known"),
        ({"seed": [1, 1]}, "tune.seed must be without repetition"),
        ({"trials": -1}, "tune.trials must be at least 1"),
    ],
)
def test_wrong_budgets(tune, message):
    with pytest.raises(ConfigError, match=message):
        config.study("x", {"train": {"steps": 1}, "tune": tune})


def test_cases_add_ranges_but_no_budget():
    table = {"train": {"steps": 1}, "tune": {"train": {"lr": [0.1, 1]}}}
    case = {"name": "a", "tune": {"train": {"optimiser": {"momentum": {"low": 0, "high": 0.9}}}}}
    study = config.study("x", {**table, "case": [case, {"name": "b"}]})
    assert [list(c.ranges) for c in study.cells] == [
        ["train.lr", "train.optimiser.momentum"],
        ["train.lr"],
    ]
    with pytest.raises(ConfigError, match=r"every case has the same budget"):
        config.study("x", {**table, "case": [{**case, "tune": {"trials": 3}}]})


def test_settings_by_dotted_keys():
    e = config.study("x", {"train": {"steps": 1, "model": {"kind": "mlp", "hidden": [8]}}}).cells[0]
    other = changed(changed(e.experiment, "train.lr", 0.3), "train.model.hidden", [16, 16])
    assert other.train.lr == 0.3
    assert value_of(other, "train.model.hidden") == [16, 16]
    assert e.experiment.train.lr == 0.1
    limits = checked({"train.lr": read_range({"low": 1, "high": 3}, "train.lr")}, e.experiment)
    assert not limits["train.lr"].whole  # the setting is a number with a fraction


def test_data_without_validation_are_refused(tmp_path):
    table = {"data": {"kind": "blank"}, "train": {"steps": 1}, "tune": {"train": {"lr": [0.1, 1]}}}
    with pytest.raises(ConfigError, match=r"set apart for validation. Got Blank"):
        tune_study(config.study("x", table), tmp_path, jobs=1)


def test_a_study_without_ranges_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="must give the range of a setting"):
        tune_study(config.study("x", {"train": {"steps": 1}}), tmp_path, jobs=1)
