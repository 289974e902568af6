"""Sessions and starts in whole runs, also where things are small, empty or odd."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedtide.data.source as source
from fedtide import Data, Experiment, Train, run
from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.moon import Moon
from fedtide.core.errors import ConfigError
from fedtide.data.holdings import Static
from fedtide.data.partition import Dirichlet
from fedtide.population.arrivals import Poisson, VisitTrace
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Alternating, Pattern
from fedtide.run.preparation import Preparation
from fedtide.starts import ArchiveAverage, Previous, Similarity
from fedtide.starts.trigger import Drop, Signature, Turnover
from tests.worlds import settings_of

SMALL = Experiment(
    data=Data(name="digits", partition=Dirichlet(alpha=0.5)),
    population=Alternating(clients=4, sessions=5, rounds=4),
    train=Train(lr=0.1, batch_size=32, steps=2),
    start=Similarity(),
    engine=settings_of(workers=1),
    seed=3,
)
TURNS = Pattern(clients=4, sessions=((0, 1), (2, 3), (0, 1), (2, 3), (0, 1)), rounds=2)


def starts(history):
    return [line for line in history.rounds if "start" in line]


def test_similarity_recognises_who_returns():
    history = run(SMALL)
    weights = [line.get("start_weights") for line in starts(history)]
    assert weights[:3] == [None, None, [1.0]]
    assert weights[3][0] > 0.99  # B, A' | B: the B before
    assert weights[4][1] > 0.99  # A | B, A, B: the A before
    assert [line["t"] for line in starts(history)] == [0, 4, 8, 12, 16]


def test_after_the_pilot_everybody_begins_alike():
    """The same model, the same clients, the same numbers: the first session after the pilot is the same."""
    runs = [
        run(replace(SMALL, start=s)) for s in (Similarity(), Previous(P=1), ArchiveAverage(P=1))
    ]
    for history in runs[1:]:
        for mine, theirs in zip(runs[0].rounds[:8], history.rounds[:8], strict=True):
            assert mine["accuracy"] == theirs["accuracy"]


def test_without_scaling_similarity_is_the_average():
    plain, scaled = (
        run(replace(SMALL, start=ArchiveAverage(P=1))),
        run(replace(SMALL, start=Similarity(R=0))),
    )
    torch.testing.assert_close(plain.model.x, scaled.model.x)


def test_gradient_rounds_are_charged():
    """V = 2 rounds of 4 clients with 2 steps each, in four of the five sessions."""
    history, plain = (
        run(replace(SMALL, start=Similarity(V=2))),
        run(replace(SMALL, start=Previous())),
    )
    line, same = history.rounds[4], plain.rounds[4]
    assert (line["gradient_rounds"], line["gradient_uploads"]) == (2, 8)
    assert line["steps"] == same["steps"] + 2 * same["steps"]
    assert line["bytes_up"] == 3 * same["bytes_up"]
    assert line["bytes_down"] == 3 * same["bytes_down"]
    found = history.metrics()
    assert found["gradient_rounds"] == 8
    assert found["uploads"] == 20 * 4 + 4 * 8
    assert found["broadcasts"] == 20 + 8
    z = len(history.model.x)
    assert found["stored_floats"] == z + 3 * 2 * z  # the pilot and three sessions, 2Z each


def test_a_sample_of_clients_computes_the_gradient():
    history = run(replace(SMALL, start=Similarity(clients=2)))
    assert [line["gradient_uploads"] for line in starts(history)[1:]] == [2, 2, 2, 2]
    assert history.metrics()["transition_accuracy"][-1] > 0.5


@pytest.mark.parametrize("algorithm", [Moon(), Continuous(of=Moon())])
def test_gradient_rounds_leave_no_trace(algorithm):
    """Clients with memories, and a gradient round at every start whose result does not matter (R = 0)."""
    e = replace(SMALL, algorithm=algorithm, train=Train(lr=0.1, steps=2, memories="keep"))
    plain, with_gradients = (
        run(replace(e, start=ArchiveAverage(P=1))),
        run(replace(e, start=Similarity(R=0))),
    )
    torch.testing.assert_close(plain.model.x, with_gradients.model.x)


def test_gradient_rounds_that_use_memories():
    """As in the code of the DIMC paper, where they overwrite the previous models of MOON's clients."""
    keep = Train(lr=0.1, steps=2, memories="keep")
    e = replace(SMALL, algorithm=Moon(mu=5.0), train=keep)
    aside, used = (
        run(replace(e, start=Similarity(R=0, memories=memories))) for memories in ("aside", "used")
    )
    same = [a["loss"] == b["loss"] for a, b in zip(aside.rounds, used.rounds, strict=True)]
    assert all(same[:4])  # the first gradient round is after the pilot
    assert not all(same[4:])
    assert [line.get("gradient_uploads") for line in starts(used)][1:] == [4, 4, 4, 4]
    with pytest.raises(ConfigError, match="'aside', unless train"):
        replace(e, train=Train(steps=2), start=Similarity(memories="used"))


def test_gradient_rounds_run_at_half_the_rate(monkeypatch):
    seen, plain = [], Preparation.gradient_rounds

    def watched(self, *asked):
        def engine_run(broadcast, *rest):
            seen.append((broadcast.lr, broadcast.purpose))
            return original(broadcast, *rest)

        original = self.world.engine.run
        monkeypatch.setattr(self.world.engine, "run", engine_run)
        try:
            return plain(self, *asked)
        finally:
            monkeypatch.setattr(self.world.engine, "run", original)

    monkeypatch.setattr(Preparation, "gradient_rounds", watched)
    run(replace(SMALL, start=Similarity(V=2), population=replace(SMALL.population, sessions=2)))
    assert seen == [(0.05, "gradient 0"), (0.05, "gradient 1")]


def test_rounds_without_anybody():
    """No client exists in rounds 0, 4 and 5: none trains, the model is not tested and stays as it is."""
    stays = ((0, 1, 4), (1, 1, 4), (2, 6, 9), (0, 8, 10))
    e = replace(SMALL, population=VisitTrace(stays=stays, clients=4, rounds=10))
    for participation in (SMALL.participation, Uniform(rate=0.5)):
        history = run(replace(e, participation=participation))
        tested = [line["accuracy"] is not None for line in history.rounds]
        assert tested == [False, True, True, True, False, False, True, True, True, True]
        assert [line["cohort"] > 0 for line in history.rounds] == tested
        assert [line["t"] for line in starts(history)] == [1, 6, 8, 9]
        assert history.metrics()["broadcasts"] == 7 + 3


def test_sessions_of_one_client():
    turns = Pattern(clients=3, sessions=((0,), (1,), (0,), (1,), (0,)), rounds=3)
    history = run(replace(SMALL, population=turns, start=Similarity(V=2)))
    assert history.rounds[-1]["start" if "start" in history.rounds[-1] else "cohort"] == 1
    assert (
        starts(history)[-1]["start_weights"][1] > 0.9
    )  # sessions 1, 2, 3: client 0 was there in 2


def test_a_session_shorter_than_its_gradient_rounds():
    """Gradient rounds come before a session and do not use up its rounds."""
    history = run(replace(SMALL, population=replace(TURNS, rounds=1), start=Similarity(V=3)))
    assert len(history.rounds) == 5
    assert [line["gradient_rounds"] for line in starts(history)[1:]] == [3, 3, 3, 3]


def test_a_client_that_returns_with_other_labels(monkeypatch):
    """What counts is what clients hold, not who they are: clients 0 and 1 bring group B's data the second
    time, and the start takes the model of those who had such data before."""

    class Swapping(Static):
        """From session 2 on, every client holds what client 3 - c held."""

        def _whose(self, t, ids):
            return 3 - ids if t >= 4 else ids

        def sizes(self, t, ids):
            return super().sizes(t, self._whose(t, ids))

        def examples(self, t, ids, places):
            return super().examples(t, self._whose(t, ids), places)

        def held(self, t, ids):
            return super().held(t, np.sort(self._whose(t, ids)))

    def distribute(dataset, partition, groups, seed, without=None):
        targets = dataset.train.targets.numpy()
        owners = np.where(targets < 5, targets % 2, 2 + targets % 2)  # 0, 1: labels 0-4; 2, 3: 5-9
        part = Static.of_owners(owners, 4)
        return Swapping(part.order, part.offsets)

    monkeypatch.setattr(source, "distribute", distribute)
    turns = replace(TURNS, sessions=((0, 1), (2, 3), (2, 3), (0, 1)))
    history = run(replace(SMALL, population=turns))
    # session 1: 2 and 3 with labels 5-9; session 2: 2 and 3 with 0-4; session 3: 0 and 1 with 5-9
    assert starts(history)[3]["start_weights"][0] > 0.99


TIDE = Poisson(clients=10, present=6, stay=40, opening=6, tide=10, rounds=56)


def test_triggers_start_less_often_than_clients_change():
    e = replace(SMALL, population=TIDE, seed=5)
    changes = run(replace(e, start=Previous())).rounds[-1]["session"]
    counts = {}
    for trigger in (Turnover(share=0.7), Drop(by=0.3, rest=3), Signature(share=0.7, clients=2)):
        history = run(replace(e, start=Similarity(reset=False, trigger=trigger)))
        counts[type(trigger)] = history.metrics()["starts"]
        assert [line["session"] for line in history.rounds][-1] == changes
    assert 4 <= counts[Turnover] < changes / 2
    assert 2 <= counts[Drop] < changes / 2
    assert 4 <= counts[Signature] < changes / 2


def test_looking_is_charged_even_where_nothing_starts():
    never = Signature(share=0.01, by=1.999, clients=2)
    history = run(replace(SMALL, population=TIDE, start=Similarity(trigger=never), seed=5))
    looked = [line for line in history.rounds if "gradient_rounds" in line]
    assert len(starts(history)) == 2  # the pilot, and the session after it
    assert len(looked) > 5
    assert {line["gradient_uploads"] for line in looked[1:]} == {2}  # a client in either half


def test_two_runs_are_the_same_run():
    e = replace(SMALL, population=TIDE, start=Similarity(trigger=Turnover()), seed=8)
    one, other = run(e), run(e)
    assert torch.equal(one.model.x, other.model.x)
    assert [line["clients"] for line in one.rounds] == [line["clients"] for line in other.rounds]
