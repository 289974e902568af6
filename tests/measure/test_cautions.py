"""What a reader must know first: runs that diverged, rounds without a client."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedtide import config
from fedtide.core.errors import TrainingError
from fedtide.measure.cautions import cautions
from fedtide.measure.evaluation import Evaluation
from fedtide.population.sessions import Alternating, Fixed
from fedtide.record.checkpoint import Checkpointing, Checkpoints, Stopped
from fedtide.record.journal import Journal, read
from fedtide.run.execute import run_study
from fedtide.run.experiment import Experiment
from fedtide.run.loop import run
from fedtide.run.preflight import foreseen, preflight
from fedtide.run.world import World
from fedtide.training.train import Train
from tests.show.made import folder, html
from tests.show.made import run as made_run


def experiment(lr=1e30, rounds=8, **evaluation):
    return Experiment(
        population=Fixed(clients=4, rounds=rounds),
        train=Train(lr=lr, steps=2, batch_size=8),
        evaluation=Evaluation(**evaluation),
        seed=3,
    )


def test_a_run_that_diverges_stops_at_the_third_evaluation():
    seen = []
    with pytest.raises(TrainingError) as caught:
        run(experiment(), watch=seen.append)
    message = str(caught.value)
    assert message.startswith("round 2: the test loss must not be more than 10 times the untrained")
    assert "try a smaller train.lr" in message
    assert "evaluation.diverged = 'warn'" in message
    assert [line["diverged"] for line in seen] == [1, 2, 3]  # all three are kept


def test_evaluations_are_counted_not_rounds():
    seen = []
    with pytest.raises(TrainingError, match="round 5"):
        run(experiment(every=2), watch=seen.append)
    assert [line.get("diverged") for line in seen] == [None, 1, None, 2, None, 3]


def test_a_run_may_go_on():
    lines = run(experiment(diverged="warn")).rounds
    assert [line["diverged"] for line in lines] == list(range(1, 9))


def test_a_run_that_learns_is_left_alone():
    assert not any("diverged" in line for line in run(experiment(lr=0.1)).rounds)


LOSSES = [25.0, None, 24.0, 22.0, 24.0, 24.0, None, 24.0, 24.0]
COUNTS = [1, None, 2, None, 1, 2, None, 3, 4]


def test_the_count_by_hand():
    """The untrained model's loss is 2.3, ten times that 23; a loss below ends the row."""
    lines = []
    for loss in LOSSES:
        line = {"loss": loss}
        lines.append(line | Evaluation().judged(line["loss"], lines, lambda: 2.3))
    assert [line.get("diverged") for line in lines] == COUNTS


def evaluated(world, population, t):
    """The untrained model's test loss in round t."""
    world.enter(population.at(t))
    return world.evaluate(t, world.initial).loss


def test_the_untrained_loss_is_that_of_the_sessions_test_set(monkeypatch):
    """Computed once for each set of labels."""
    population = Alternating(clients=3, sessions=4, rounds=1)
    with World.build(replace(experiment(), population=population)) as world:
        expected = [evaluated(world, population, t) for t in range(4)]
        assert expected[0] == expected[2] != expected[1] == expected[3]
        evaluate, calls = world.engine.evaluate, []
        monkeypatch.setattr(
            world.engine, "evaluate", lambda *test: calls.append(test) or evaluate(*test)
        )
        for t in range(4):
            world.enter(population.at(t))
            assert world.untrained.loss == expected[t]
        assert len(calls) == 2


@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_run_decides_like_an_unbroken_one(tmp_path, stop):
    """It diverges in round 2, wherever it was broken off."""

    def go(path, wish=lambda: False):
        path.mkdir(exist_ok=True)
        checkpoints = Checkpoints(path / "checkpoints", Checkpointing(rounds=1), wish)
        journal = Journal(path / "journal.jsonl", fresh=False)
        try:
            run(experiment(), journal, checkpoints=checkpoints)
        finally:
            journal.close()

    with pytest.raises(TrainingError) as whole:
        go(tmp_path / "whole")
    asked = iter([False] * (stop - 1) + [True] * 9)
    with pytest.raises(Stopped):
        go(tmp_path / "broken", lambda: next(asked))
    assert len(read(tmp_path / "broken" / "journal.jsonl")) == stop
    with pytest.raises(TrainingError) as resumed:
        go(tmp_path / "broken")
    assert str(resumed.value) == str(whole.value)
    for name in ("whole", "broken"):
        lines = read(tmp_path / name / "journal.jsonl")
        assert [line["diverged"] for line in lines] == [1, 2, 3]
    with pytest.raises(TrainingError, match="round 2"):  # and again
        go(tmp_path / "broken")


STUDY = """
[population]
kind = "fixed"
clients = 4
rounds = 5
[train]
steps = 1
[evaluation]
diverged = "warn"
[compare]
train.lr = [0.1, 1e30]
"""


def test_summary_and_report_say_so(tmp_path):
    file = tmp_path / "rates.toml"
    file.write_text(STUDY)
    outcome = run_study(config.load(file), tmp_path / "runs", jobs=1)
    (caution,) = outcome.summary["cautions"]
    assert caution.startswith("Training diverged with lr = 1e+30 (seed 0)")
    written = json.loads((outcome.folder.path / "summary.json").read_text())
    assert written["cautions"] == [caution]
    page = (outcome.folder.path / "report.html").read_text()
    assert page.index("Training diverged with lr = 1e+30") < page.index('class="answer"')


def test_a_study_that_stopped_has_it_in_its_report(tmp_path):
    lines = made_run([0.1, 0.1, 0.1])
    for number, line in enumerate(lines):
        line["diverged"] = number + 1
    made = folder(tmp_path, [({"lr": 9}, {1: lines})], seeds=(1,), unfinished=[(0, 1)])
    assert "Training diverged with lr = 9 (seed 1)" in html(made)


# Rounds without a client


def test_rounds_without_a_client_by_hand():
    some = [{"cohort": 0 if t < 2 else 5, "session": 0} for t in range(10)]
    few = [{"cohort": 0 if t < 1 else 5, "session": 0} for t in range(20)]
    assert cautions([("a", {1: some, 2: some}), ("b", {1: few})]) == [
        "No client took part in 4 of 20 rounds with a: the model stood still there."
    ]
    many = cautions([(label, {1: some}) for label in "abcde"])
    assert many[0].endswith(
        "in 2 of 10 rounds with c; and 2 more settings: the model stood still there."
    )


def test_starts_after_which_nothing_was_tested():
    """Three sessions of two rounds, tested in the first and the last round: one of two starts."""
    lines = made_run([0.5, None, None, None, None, 0.5], per_session=2)
    for line in lines:
        line["loss"] = None if line["accuracy"] is None else 0.5
    (told,) = cautions([("a", {1: lines})])
    assert told.startswith("The model was not tested after 1 of 2 starts")


def test_the_report_tells_of_rounds_without_a_client(tmp_path):
    lines = made_run([0.5] * 8)
    for line in lines[:2]:
        line["cohort"] = 0
    page = html(folder(tmp_path, [({}, {1: lines})], seeds=(1,)))
    assert "No client took part in 2 of 8 rounds with all" in page
    assert "Rounds without a client" in page


RARE = """
[population]
kind = "fixed"
clients = 4
rounds = 60
[participation]
kind = "{kind}"
rate = {rate}
[train]
steps = 1
"""


@pytest.mark.parametrize("kind", ["bernoulli", "markov"])
def test_they_are_foretold(tmp_path, kind, caplog):
    """What is drawn beforehand is what happens."""
    file = tmp_path / "rare.toml"
    file.write_text(RARE.format(kind=kind, rate=0.1))
    study = config.load(file)
    (sentence,) = foreseen(study.settings)
    assert [sentence] == preflight(study.settings)
    empty = int(sentence.split(" of the first 60 rounds")[0].split()[-1])
    outcome = run_study(study, tmp_path / "runs", jobs=1)
    assert sentence in caplog.text
    lines = outcome.folder.journals()[0].runs[0]
    assert empty == sum(line["cohort"] == 0 for line in lines) > 6
    assert f"No client took part in {empty} of 60 rounds" in outcome.summary["cautions"][0]


def test_nothing_is_foretold_where_clients_are_there(tmp_path):
    file = tmp_path / "often.toml"
    file.write_text(RARE.format(kind="bernoulli", rate=0.9))
    assert foreseen(config.load(file).settings) == []
    e = replace(experiment(), population=Fixed(clients=4, rounds=1))
    assert foreseen([("all", e)]) == []


def test_a_process_that_learns_from_training_is_not_asked_beforehand():
    from fedtide.population.process import Participation

    class Learner(Participation):
        def draw(self, who, t, session, seed):
            return session.clients[: who or 0]

        def start(self, crowd, seed):
            return 0

        def observe(self, who, done):
            return who + int(done.facts["train_accuracy"] > np.inf)

    assert foreseen([("all", replace(experiment(), participation=Learner()))]) == []
