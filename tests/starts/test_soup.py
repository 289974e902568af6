"""The soup: candidates by hand, and whole runs in which it must never harm."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedtide import Data, Experiment, Train, run
from fedtide.core import types
from fedtide.core.errors import ConfigError
from fedtide.data.partition import Dirichlet
from fedtide.guard.attacks import Attack, SignFlip
from fedtide.guard.privacy import Privacy
from fedtide.population.sessions import Alternating, Pattern
from fedtide.starts import ArchiveAverage, Previous, Similarity, Soup
from fedtide.starts.archive import Archive, Diverse, Past
from tests.starts.stage import LAST, LAYOUT, GradientRounds, beginning, model, session
from tests.worlds import settings_of, timeless

PAST = (Past(0, model(1.0)), Past(1, model(2.0)), Past(2, LAST))
WORLD = Experiment(
    data=Data(name="digits", partition=Dirichlet(alpha=0.3)),
    population=Alternating(clients=6, sessions=5, rounds=4),
    train=Train(lr=0.1, batch_size=32, steps=3),
    start=Soup(),
    engine=settings_of(workers=1),
    seed=3,
)


class Parabolas:
    """Clients whose loss at a model with first parameter x is (x - aim)^2; it notes whom it asks."""

    def __init__(self, *aims, examples=None):
        self.aims = np.array(aims, dtype=np.float64)
        self.examples = np.ones(len(aims)) if examples is None else np.array(examples, float)
        self.asked = []

    def __call__(self, models, mixes, clients=0, ids=None):
        self.asked.append((mixes.tolist(), clients, None if ids is None else ids.tolist()))
        x = np.array(
            [float(sum(w * m.x[0] for w, m in zip(row, models, strict=True))) for row in mixes]
        )
        ids = np.arange(len(self.aims)) if ids is None else ids
        return types.Tested(ids, (x[:, None] - self.aims[ids]) ** 2, self.examples[ids])


def begun(losses, present=3, **settings):
    known = beginning(PAST, losses=losses)._replace(session=session(3, clients=present))
    return Soup(**settings).begin(known)


def test_the_average_with_the_lowest_loss_is_taken():
    """Models 9 (current), 1 and 2; clients at 1.4 and 1.6: 2 is best alone, the average of 2 and 1 better."""
    ask = Parabolas(1.4, 1.6)
    found = begun(ask, margin=0.0)
    torch.testing.assert_close(found.model.x, model(1.5).x)
    assert found.facts["start_from"] == [2, 0, 1]
    assert found.facts["start_weights"] == [0.0, 0.5, 0.5]
    alone, averages = ask.asked
    assert alone == (torch.eye(3).tolist(), 0, None)
    third = torch.full((3,), 1 / 3).tolist()
    assert averages == ([[0.0, 0.5, 0.5], third], 0, [0, 1])
    by_hand = [np.mean((x - np.array([1.4, 1.6])) ** 2) for x in (9, 1, 2, 1.5, 4)]
    np.testing.assert_allclose(found.facts["start_losses"], by_hand, rtol=1e-6)
    assert found.facts["start_gain"] == pytest.approx(by_hand[0] - by_hand[3])


def test_the_current_model_stays_where_it_is_best():
    found = begun(Parabolas(9.0, 8.0, 10.0))
    assert found.model is LAST
    assert (found.facts["start_gain"], found.facts["start_weights"]) == (0.0, [1.0, 0.0, 0.0])


def test_a_gain_within_chance_is_no_gain():
    """Two clients at 8.4, one at 0: another model is better on average, by less than the standard error.

    If these are all clients, the mean is known and any lower loss counts; as a sample of six it does not.
    """
    ask = Parabolas(8.4, 8.4, 0.0)
    assert begun(ask).model is not LAST
    assert begun(ask, present=6).model is LAST
    assert begun(ask, present=6, margin=0.0).model is not LAST


def test_with_one_client_any_lower_loss_counts():
    assert begun(Parabolas(5.2), present=1).model is not LAST


def test_one_answer_of_many_clients_is_none():
    """It says nothing about the error, so nothing is known to beat the current model."""
    assert begun(Parabolas(1.4), present=3).model is LAST
    assert begun(Parabolas(1.4), present=3, margin=0.0).model is not LAST


def test_clients_weigh_by_examples_or_equally():
    ask = Parabolas(9.0, 1.0, examples=(100, 1))
    assert begun(ask).model is LAST
    assert begun(ask, weights="equal", margin=0.0).model is not LAST


def test_by_default_clients_weigh_as_in_the_algorithm():
    ask = Parabolas(9.0, 1.0, examples=(100, 1))
    known = beginning(PAST, losses=ask)
    assert Soup(margin=0.0).begin(known).model is LAST
    assert Soup(margin=0.0).begin(known._replace(counts_examples=False)).model is not LAST


def test_mixes_of_other_starts_are_tested_too():
    """The average start would mix 1, 2 and 9, the current model; all were downloaded with the first test."""
    ask = Parabolas(4.0, 4.0)
    found = begun(ask, margin=0.0, also=(ArchiveAverage(),))
    assert len(found.facts["start_tests"]) == 6
    torch.testing.assert_close(found.model.x, model(4.0).x)
    assert len(ask.asked) == 2


def test_a_similarity_start_proposes_its_mix():
    """R = inf takes the session with the same gradient, session 1; its model suits the clients best."""
    gradients = [torch.empty(0), torch.tensor([0.0, 1.0, 0.0, 0.0]), torch.tensor([1.0, 0, 0, 0])]
    past = [p._replace(gradient=g) for p, g in zip(PAST, gradients, strict=True)]
    rounds = GradientRounds([0.0, 2.0, 0.0, 0.0])
    known = beginning(past, losses=Parabolas(2.0, 2.0), gradient_rounds=rounds)
    found = Soup(margin=0.0, also=(Similarity(R=math.inf),)).begin(known)
    assert found.facts["start_tests"][-1] == [0.0, 0.0, 1.0]
    assert found.gradient.tolist() == [0.0, 2.0, 0.0, 0.0]
    torch.testing.assert_close(found.model.x, model(2.0).x)


def test_a_run_with_all_candidates():
    """Gradient rounds begin once there is a pilot model, and a chosen mix is never worse than the current."""
    start = Soup(also=(ArchiveAverage(), Similarity()))
    lines = [line for line in run(replace(WORLD, start=start)).rounds if "start" in line]
    assert [line.get("gradient_rounds", 0) for line in lines] == [0, 1, 1, 1, 1]
    assert all(line.get("start_gain", 0.0) >= 0 for line in lines)
    assert len(lines[-1]["start_tests"]) == 2 * len(lines[-1]["start_from"]) - 1 + 2


def test_without_answers_the_model_stays():
    assert begun(Parabolas()).model is LAST


def test_without_earlier_models_nothing_is_tested():
    ask = Parabolas(1.0)
    assert Soup().begin(beginning((Past(0, LAST),), losses=ask)).model is LAST
    assert not ask.asked


def test_only_clients_that_answered_both_tests_are_compared():
    class Fewer(Parabolas):
        def __call__(self, models, mixes, clients=0, ids=None):
            found = super().__call__(models, mixes, clients, ids)
            return found if ids is None else found.some(found.ids[:1])

    found = begun(Fewer(9.0, 1.0, 1.0))
    assert found.model is LAST  # client 0 is happy with it


def lies(kind, losses):
    """The losses [m] of a hostile client."""
    return {
        "zero": np.zeros_like(losses),
        "huge": np.where(np.arange(len(losses)) == 0, 0.0, 1e30),
        "huge for the current model": np.where(np.arange(len(losses)) == 0, 1e30, 0.0),
        "reverse": losses.max() + losses.min() - losses,
    }[kind]


@pytest.mark.parametrize("kind", ["zero", "huge", "huge for the current model", "reverse"])
@pytest.mark.parametrize("seed", range(5))
def test_a_trimmed_mean_bounds_what_a_tenth_of_the_clients_can_do(kind, seed):
    """Over the honest clients, what is taken is at most `margin` standard errors above the current model."""
    numbers = np.random.default_rng(seed)
    aims = numbers.normal(8.0, 2.0, 20)
    honest = Parabolas(*aims)

    def ask(models, mixes, clients=0, ids=None):
        found = honest(models, mixes, clients, ids)
        for client in (0, 1):
            found.losses[:, client] = lies(kind, found.losses[:, client])
        return found

    start = Soup(robust="trimmed", share=0.1)
    x = float(begun(ask, present=20, robust="trimmed", share=0.1).model.x[0])
    change = (x - aims[2:]) ** 2 - (9.0 - aims[2:]) ** 2
    error = change.std(ddof=1) / np.sqrt(len(change))
    assert change.mean() <= start.margin * error


def test_a_plain_mean_can_be_misled():
    """The same lies move the plain mean: this is what "trimmed" is for."""

    def ask(models, mixes, clients=0, ids=None):
        found = Parabolas(*[9.0] * 19, 1.0)(models, mixes, clients, ids)
        found.losses[:, -1] = lies("huge for the current model", found.losses[:, -1])
        return found

    assert begun(ask, present=20, margin=0.5).model is not LAST
    assert begun(ask, margin=0.5, robust="trimmed").model is LAST


def test_a_second_visit_replaces_the_first_and_models_that_differ_stay():
    start, archive = Soup(keep=Diverse(H=2)), Archive()
    visits = [(0, 1.0, (0, 1)), (1, 5.0, (2, 3)), (2, 1.5, (1, 0))]
    for number, x, clients in visits:
        archive = start.store(archive, Past(number, model(x), clients=np.array(clients)), LAYOUT)
    assert [p.session for p in archive.past] == [1, 2]
    archive = start.store(archive, Past(3, model(5.1), clients=np.array([7])), LAYOUT)
    assert [p.session for p in archive.past] == [2, 3]  # 5.0 is too near 5.1


@pytest.mark.parametrize("clients", [0, 3])
def test_what_is_taken_is_never_worse_for_those_who_tested_it(clients):
    for line in run(replace(WORLD, start=Soup(clients=clients))).rounds:
        if "start_losses" in line:
            taken = line["start_tests"].index(line["start_weights"])
            assert line["start_losses"][taken] <= line["start_losses"][0]
            assert line["start_gain"] >= 0


def test_soup_finds_the_model_of_clients_that_return():
    soup, previous = (run(replace(WORLD, start=start)) for start in (Soup(), Previous()))
    first = [line["accuracy"] for line in soup.rounds if line["round_in_session"] == 0][2:]
    plain = [line["accuracy"] for line in previous.rounds if line["round_in_session"] == 0][2:]
    assert np.mean(first) > np.mean(plain) + 0.1


@pytest.mark.parametrize("algorithm", ["fedavg", "mifa", "scaffold"])
def test_where_the_model_stays_the_run_is_that_of_previous_bit_for_bit(algorithm):
    """A margin that no gain of a sample can beat: server, memories and model go on as with `previous`."""
    e = replace(WORLD, algorithm=algorithm)
    stays, previous = (
        run(replace(e, start=start)) for start in (Soup(margin=1e9, clients=5), Previous())
    )
    assert torch.equal(stays.model.x, previous.model.x)
    for mine, plain in zip(stays.rounds, previous.rounds, strict=True):
        assert (mine["accuracy"], mine["loss"]) == (plain["accuracy"], plain["loss"])


def test_the_costs_of_a_test():
    """In session 2 each client receives 2 models and 2 x 2 + 1 x 2 weights, and sends 2 + 1 losses."""
    soup, previous = (run(replace(WORLD, start=start)) for start in (Soup(), Previous()))
    line, plain = soup.rounds[8], previous.rounds[8]
    z = 4 * len(soup.model.x)
    assert (line["test_exchanges"], line["test_answers"]) == (2, 12)
    assert line["bytes_down"] - plain["bytes_down"] == 6 * (2 * z + 8 * 4 + 8 * 2)
    assert line["bytes_up"] - plain["bytes_up"] == 6 * 8 * (2 + 1)


def test_a_sample_stands_for_the_clients_that_are_here():
    """Half of the clients are new: half of the sample is."""
    halves = Pattern(
        clients=12, sessions=((*range(8),), (*range(4, 12),), (*range(4, 12),)), rounds=2
    )
    history = run(replace(WORLD, population=halves, start=Soup(clients=4)))
    assert [line.get("test_answers") for line in history.rounds if "start" in line] == [
        None,
        None,
        8,
    ]


def test_hostile_clients_report_losses_in_reverse_order():
    losses, hostile = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), np.array([False, True])
    assert SignFlip().losses(losses, hostile, 0).T.tolist() == [[1, 2, 4], [4, 3, 1]]
    assert Attack().losses(losses, hostile, 0) is losses


def test_losses_that_are_no_numbers_are_refused():
    answers = types.Tested(
        np.arange(3), np.array([[1.0, np.nan, 2.0], [1.0, 1.0, np.inf]]), np.ones(3)
    )
    assert WORLD.gate.tested(answers, np.arange(0), 0).ids.tolist() == [0]


def test_noise_does_not_hide_losses():
    with pytest.raises(ConfigError, match=r"privacy.noise must be 0 with a start"):
        replace(WORLD, privacy=Privacy(clip=1.0, noise=1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": -1}, "start.clients must be zero or positive"),
        ({"margin": -0.1}, "start.margin must be zero or positive"),
        ({"share": 0.5}, r"start.share must be in \(0, 0.5\)"),
        ({"also": (Previous(),)}, "start.also must be starts that mix earlier models"),
        ({"also": (Similarity(P=2),)}, "start.also must be starts that mix earlier models"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        Soup(**settings)


@pytest.mark.parametrize("kind", ["vectorised", "compiled"])
def test_other_engines_take_the_same_models(kind):
    mine, loop = (run(replace(WORLD, engine=settings_of(k, workers=1))) for k in (kind, "loop"))
    assert [line.get("start_weights") for line in mine.rounds] == [
        line.get("start_weights") for line in loop.rounds
    ]
    torch.testing.assert_close(mine.model.x, loop.model.x, rtol=1e-4, atol=1e-5)


def test_two_runs_are_the_same():
    one, other = run(WORLD), run(WORLD)
    assert timeless(one.rounds) == timeless(other.rounds)
