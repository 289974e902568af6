"""Forks: every branch begins at the same state, and the run that is followed is not disturbed."""

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from fedtide import Experiment, Poisson, Scaffold, config, run
from fedtide.cli import app
from fedtide.core.errors import ConfigError
from fedtide.measure.regret import Branch, Fork
from fedtide.population.live import Live
from fedtide.run.fork import fork
from fedtide.run.regret import fork_study
from fedtide.show.regret import regret_table
from fedtide.starts import Cold, Previous, Similarity, Soup
from fedtide.starts.trigger import Always
from tests.worlds import timeless

TABLE = {
    "data": {"partition": {"kind": "dirichlet", "alpha": 0.3}},
    "population": {"kind": "alternating", "clients": 4, "sessions": 5, "rounds": 4},
    "algorithm": "scaffold",
    "train": {"steps": 3, "lr": 0.1, "optimiser": {"kind": "sgd", "momentum": 0.5}},
}
BATTERIES = {
    "kind": "wireless",
    "deadline_seconds": 1.0,
    "computing": {"kind": "flops", "per_parameter": 2.0},
    "fleet": {"battery_joules": [1e-6, 1e-4], "charging_watts": 1e-5},
}
STARTS = (Soup(), Similarity(), Previous(), Cold())


def experiment(**changes):
    return config.study("fork", {**TABLE, **changes}).cells[0].experiment


@pytest.mark.parametrize("first", [0, 1, 2], ids=["soup", "similarity", "previous"])
@pytest.mark.parametrize("network", [{"kind": "ideal"}, BATTERIES], ids=["ideal", "batteries"])
def test_the_run_is_that_without_forks_and_so_is_the_branch_of_its_start(first, network):
    e = experiment(network=network)
    starts = (STARTS[first], *(s for n, s in enumerate(STARTS) if n != first))
    plain = timeless(run(replace(e, start=starts[0])).rounds)
    found = fork(e, starts, length=3)
    assert [{**line} for line in found.lines] == plain
    assert [one.t for one in found.forks] == [4, 8, 12, 16]
    for one in found.forks:
        assert [{**line} for line in one.branches[0].lines] == plain[one.t : one.t + 3]
        assert all(len(branch.lines) == 3 for branch in one.branches)


def test_a_branch_is_what_another_start_would_have_led_to():
    """Until the first change all starts make the same run, so each one's first branch is its own run."""
    e = experiment()
    starts = (Previous(), Soup(), Cold(), Similarity(P=1))
    branches = fork(e, starts, length=4).forks[0].branches
    for start, branch in zip(starts, branches, strict=True):
        own = timeless(run(replace(e, start=start)).rounds)[4:8]
        assert [{**line} for line in branch.lines] == own


def test_starts_collect_along_the_run_that_is_followed():
    """At the last change the similarity start has a pilot and gradients, although it was never taken."""
    last = fork(experiment(), (Previous(), Similarity()), length=1).forks[-1].branches[1]
    assert last.lines[0]["start_from"] == [1, 2, 3]
    assert last.bill["gradient_rounds"] == 1


def test_clients_that_come_and_go_one_by_one():
    population = Poisson(clients=9, present=5, stay=4, opening=2, rounds=12)
    e = replace(experiment(), population=population, algorithm=Scaffold())
    starts = (Soup(trigger=Always()), Previous(trigger=Always()))
    plain = timeless(run(replace(e, start=starts[0])).rounds)
    found = fork(e, starts, length=4)
    assert [{**line} for line in found.lines] == plain
    assert len(found.forks) > 3
    for one in found.forks:
        assert [{**line} for line in one.branches[0].lines] == plain[one.t : one.t + 4]


def test_branches_are_tested_in_every_round():
    starts = (Soup(), Previous())
    found = fork(experiment(evaluation={"every": 20}), starts, length=2)
    assert sum(line["accuracy"] is not None for line in found.lines) == 1
    assert [one.regrets for one in found.forks] == [
        one.regrets for one in fork(experiment(), starts, length=2).forks
    ]


def test_without_a_change_there_is_no_table():
    study = config.study(
        "still", TABLE | {"population": "fixed", "compare": {"start": ["soup", "cold"]}}
    )
    study = replace(study, name="still")
    (told,) = regret_table(fork_study(study, 2))
    assert str(told) == "the run of soup has no start after the first one."


def test_regrets_by_hand():
    lines = (
        [{"accuracy": 0.5}, {"accuracy": None}, {"accuracy": 0.7}],
        [{"accuracy": 0.9}],
        [{"accuracy": 0.75}],
    )
    regrets = Fork(3, [Branch(n, each, {}) for n, each in enumerate(lines)]).regrets
    assert regrets == pytest.approx([0.3, 0.0, 0.15])


def test_what_cannot_be_forked():
    e = experiment()
    with pytest.raises(ConfigError, match="what has happened cannot be repeated"):
        fork(replace(e, population=Live(clients=3, rounds=2)), STARTS, 2)
    with pytest.raises(ConfigError, match="at least two starts"):
        fork(e, STARTS[:1], 2)
    ray = Experiment(engine="ray").engine
    with pytest.raises(ConfigError, match=r"engine\.kind must be one in this process"):
        fork(replace(e, engine=ray), STARTS, 2)
    with pytest.raises(ConfigError, match=r"start\.archive must be empty with fork"):
        fork(e, (Soup(archive="x"), Previous()), 2)


def test_the_command(tmp_path):
    (tmp_path / "turns.toml").write_text(
        '[population]\nkind = "alternating"\nclients = 3\nsessions = 3\nrounds = 3\n'
        '[train]\nsteps = 2\n[compare]\nstart = ["soup", "cold"]\nseed = [1, 2]\n'
    )
    command = ["fork", str(tmp_path / "turns.toml"), "--rounds", "2", "--out", str(tmp_path)]
    for number in (1, 2):  # an earlier result stays
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert "4 changes with a start, run of soup" in done.output
        folder = tmp_path / "turns" / f"fork-{number}"
        (told,) = json.loads((folder / "regret.json").read_text())
        assert [run["seed"] for run in told["runs"]] == [1, 2]
        assert "<title>Regret of starts</title>" in (folder / "regret.html").read_text()
    assert torch.is_grad_enabled()
