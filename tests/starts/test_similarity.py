"""DIMC: the arithmetic of Algorithm 1, by hand."""

import math

import pytest
import torch
from torch import nn

from fedtide.core.layout import Layout
from fedtide.starts.archive import Archive, Diverse, Past
from fedtide.starts.similarity import Similarity, cosine, normalised_distance
from fedtide.starts.trigger import Era
from tests.starts.stage import INITIAL, LAST, LAYOUT, PAST, GradientRounds, beginning, model

# weights point right, up and left; the last two numbers are biases, which do not count
RIGHT, UP, LEFT = [1.0, 0.0, 5.0, 0.0], [0.0, 2.0, 0.0, 0.0], [-3.0, 0.0, 1.0, 1.0]


def archived(*gradients):
    return tuple(
        past._replace(gradient=torch.tensor(g)) for past, g in zip(PAST, gradients, strict=True)
    )


def begin(start, now, *gradients):
    return start.begin(beginning(archived(*gradients), gradient_rounds=GradientRounds(now)))


def test_the_normalised_distance():
    """Directions at 0, 90 and 180 degrees are 0, sqrt 2 and 2 apart, whatever their lengths."""
    far = [
        normalised_distance(torch.tensor(RIGHT), torch.tensor(g), LAYOUT) for g in (RIGHT, UP, LEFT)
    ]
    assert far == pytest.approx([0.0, math.sqrt(2), 2.0])


def test_the_normalised_distance_is_a_mean_over_weight_tensors():
    """Two weight tensors, one equal and one opposite: (0 + 2) / 2; a tensor without gradient is a point."""
    layout = Layout.of(
        nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    )  # weight, bias, weight, bias
    one, other = torch.tensor([1.0, 7.0, 4.0, 0.0]), torch.tensor([2.0, -7.0, -1.0, 0.0])
    assert normalised_distance(one, other, layout) == pytest.approx(1.0)
    assert normalised_distance(one, torch.zeros(4), layout) == pytest.approx(1.0)


def test_the_weights_are_a_softmin():
    """Eq. 19 with distances 0, sqrt 2, 2 and R = 2: mu_z = e^(-2 d_z) / sum."""
    begun = begin(Similarity(R=2.0), RIGHT, RIGHT, UP, LEFT)
    powers = [math.exp(-2 * d) for d in (0.0, math.sqrt(2), 2.0)]
    mu = [p / sum(powers) for p in powers]
    assert begun.facts["start_distances"] == pytest.approx([0.0, math.sqrt(2), 2.0], abs=1e-6)
    assert begun.facts["start_weights"] == pytest.approx(mu, rel=1e-5)
    assert float(begun.model.x[0]) == pytest.approx(mu[0] + 2 * mu[1] + 6 * mu[2], rel=1e-5)
    mean = 3 * mu[0] + 5 * mu[1] + 7 * mu[2]  # buffers are mixed with the same weights
    assert float(begun.model.buffers["mean"]) == pytest.approx(mean, rel=1e-5)
    assert begun.gradient.tolist() == RIGHT


def test_the_two_norm_is_that_of_the_paper():
    """||(1,0,5,0) - (0,2,0,0)|| = sqrt(1 + 4 + 25); biases and lengths count."""
    begun = begin(Similarity(distance="two-norm"), RIGHT, RIGHT, UP, LEFT)
    expected = [0.0, math.sqrt(30), math.sqrt(16 + 16 + 1)]
    assert begun.facts["start_distances"] == pytest.approx(expected)


def test_without_scaling_it_is_the_average_and_with_much_the_nearest():
    assert float(begin(Similarity(R=0.0), UP, RIGHT, UP, LEFT).model.x[0]) == pytest.approx(3.0)
    assert float(begin(Similarity(R=1e4), UP, RIGHT, UP, LEFT).model.x[0]) == pytest.approx(2.0)


def test_the_first_sessions():
    """Session 0 is the pilot; session 1 computes its gradient and continues, or begins untrained."""
    start, rounds = Similarity(V=2, clients=7), GradientRounds(UP, UP)
    pilot = beginning((), number=0)._replace(archive=Archive())
    assert start.begin(pilot).model is INITIAL
    first = beginning((), number=1, gradient_rounds=rounds)
    begun = start.begin(first)
    assert begun.model is LAST
    assert begun.gradient.tolist() == UP
    assert rounds.asked == [(2, 7, 0)]
    assert Similarity(reset=True).begin(first).model is INITIAL


@pytest.mark.parametrize(
    ("pilot", "weights"),
    [
        ("average", [1 / 3, 1 / 3, 1 / 3]),
        ("ema", [0.25, 0.25, 0.5]),  # beta = 1/2: beta^2, (1 - beta) beta, 1 - beta
        ("good", [0.5, 0.0, 0.5]),  # 0.9 and 0.8 are good, 0.3 is not
    ],
)
def test_pilot_models(pilot, weights):
    start, archive = Similarity(P=3, pilot=pilot, beta=0.5, good=0.8), Archive()
    for past, accuracy in zip(PAST, (0.9, 0.3, 0.8), strict=True):
        archive = start.store(archive, past._replace(credit=accuracy), LAYOUT)
    assert archive.past == ()  # line 12: the saved models are deleted
    expected = sum(w * x for w, x in zip(weights, (1.0, 2.0, 6.0), strict=True))
    assert float(archive.pilot.x[0]) == pytest.approx(expected)


def test_without_any_good_session_the_best_is_the_pilot():
    start, archive = Similarity(P=2, pilot="good", good=0.99), Archive()
    for past, accuracy in zip(PAST, (0.5, 0.7), strict=False):
        archive = start.store(archive, past._replace(credit=accuracy), LAYOUT)
    assert archive.pilot.x[0] == 2


def test_two_diverse_sessions_of_alternating_groups_are_one_of_each():
    """A, B, A', B': the newest of each group stays."""
    start = Similarity(keep=Diverse(H=2))
    archive = Archive(model(0.0))
    for number, gradient in enumerate((RIGHT, LEFT, RIGHT, LEFT), start=1):
        nearly = torch.tensor(gradient) + torch.tensor([0.0, 0.01 * number, 0.0, 0.0])
        archive = start.store(archive, Past(number, model(float(number)), nearly), LAYOUT)
        assert len(archive.past) == min(number, 2)
    assert [past.session for past in archive.past] == [3, 4]


def drift(*halves, clients=4):
    known = beginning(gradient_rounds=GradientRounds(*halves))
    return Similarity().drift(Era(1, gradient=torch.tensor(RIGHT)), known, clients), known


def test_the_cosine_is_a_mean_over_weight_tensors():
    """Two weight tensors, one equal and one opposite: (1 - 1) / 2; biases do not count."""
    layout = Layout.of(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    one, other = torch.tensor([1.0, 7.0, 4.0, 0.0]), torch.tensor([2.0, -7.0, -1.0, 0.0])
    assert cosine(one, other, layout) == 0.0
    assert cosine(one, one, layout) == 1.0


def test_drift_is_what_chance_does_not_explain():
    """Halves at 60 degrees of each other, r = 1/2: their mean should have a cosine of 2/3 with RIGHT."""
    half, root = 0.5, math.sqrt(0.75)
    far, known = drift([half, root, 0, 0], [half, -root, 0, 0])  # r = 1/4 - 3/4 < 0 counts as 0
    assert far == pytest.approx(0.0 - 1.0)
    far, known = drift([root, half, 0, 0], [root, -half, 0, 0])  # r = 1/2; the mean points to RIGHT
    assert far == pytest.approx(2 / 3 - 1.0)
    far, known = drift([-root, half, 0, 0], [-root, -half, 0, 0])  # the mean points away from it
    assert far == pytest.approx(2 / 3 + 1.0)
    assert known.gradient_rounds.asked == [(1, 4, 1), (1, 4, 2)]


def test_one_client_has_no_halves():
    assert drift(clients=1)[0] == 0.0


def test_in_the_pilot_every_change_leads_to_a_start():
    assert Similarity().drift(Era(), beginning(), 4) == math.inf


def test_an_infinite_R_takes_the_nearest_session():
    """Sessions at equal distances share the weight."""
    begun = begin(Similarity(R=math.inf), UP, RIGHT, UP, LEFT)
    assert begun.facts["start_weights"] == [0.0, 1.0, 0.0]
    assert float(begun.model.x[0]) == 2.0
    assert begin(Similarity(R=math.inf), UP, UP, UP, LEFT).facts["start_weights"] == [0.5, 0.5, 0.0]
