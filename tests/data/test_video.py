"""The video task: the law of requests, features, held-out data, changing stores, the Genie."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedtide.core.errors import ConfigError
from fedtide.core.types import Group
from fedtide.data.stores import Arriving
from fedtide.data.video import EACH, FILES, GENRES, Users, Video, catalogue, features

USERS, ROUNDS = 6, 5
TASK = Video(
    catalogue="synthetic",
    test=40,
    stores=Arriving(capacity=(20, 30), slots=4, chance=(0.5, 1.0)),
)


def dealt(task=TASK, clients=USERS, seed=1):
    return task.deal(lambda classes: [Group(clients)], ROUNDS, seed)


def asked(task, users, count=4000, seed=1, shop=None):
    return task.requests(shop or catalogue("synthetic"), users, count, seed, "train")


def loyal(taste, epsilon, crowd=1):
    return Users(np.tile(np.asarray(taste, dtype=float), (crowd, 1)), np.full(crowd, epsilon))


def test_who_never_explores_follows_the_nearest_file():
    """K = 1 and epsilon = 1: every request is the file most like the one before."""
    shop = catalogue("synthetic")
    requests = asked(TASK, loyal([1, 0, 0, 0, 0], 1.0), 50)[0]
    own = np.arange(FILES)
    for before, after in pairwise(requests):
        genre = own[own // EACH == before // EACH]
        likeness = [
            -1 if other == before else cosine(shop.images[before], shop.images[other])
            for other in genre
        ]
        assert after == genre[int(np.argmax(likeness))]


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def test_k_nearest_files_come_as_often_as_they_are_alike():
    """K = 3: after a file, only its three nearest, with probabilities exp(cos) / sum (Eq. 82)."""
    shop = catalogue("synthetic")
    nearest, sums = shop.neighbours(3)
    requests = asked(replace(TASK, similar=3), loyal([1, 0, 0, 0, 0], 1.0, crowd=50), 2000)
    before, after = requests[:, :-1].ravel(), requests[:, 1:].ravel()
    assert (nearest[before] == after[:, None]).any(1).all()
    file = int(np.bincount(before).argmax())
    counts = np.array([(after[before == file] == other).mean() for other in nearest[file]])
    likeness = shop.likeness[file, nearest[file] % EACH]
    expected = np.exp(likeness) / np.exp(likeness).sum()
    assert np.allclose(np.diff(sums[file], prepend=0), expected)
    assert np.allclose(counts, expected, atol=0.04)


def test_who_always_explores_changes_the_genre_by_taste_and_popularity():
    """Tastes 0.5, 0.3, 0.2: from genre 0 the next is 1 with 0.3 / 0.5; files follow Zipf-Mandelbrot."""
    requests = asked(TASK, loyal([0.5, 0.3, 0.2, 0, 0], 0.0, crowd=40), 2000)
    genres = requests // EACH
    assert (genres[:, 1:] != genres[:, :-1]).all()
    from_zero = genres[:, 1:][genres[:, :-1] == 0]
    assert np.isclose((from_zero == 1).mean(), 0.6, atol=0.02)
    shares = np.sort(np.bincount(requests[genres == 1] - EACH, minlength=EACH))[::-1]
    law = (np.arange(1, EACH + 1) + TASK.plateau) ** -TASK.zipf
    assert np.allclose(shares / shares.sum(), law / law.sum(), atol=0.012)


def test_staying_has_its_probability():
    """A user that stays requests a file of the same genre, one that turns away a file of another."""
    genres = asked(TASK, loyal(np.full(5, 0.2), 0.7, crowd=20), 2000) // EACH
    assert np.isclose((genres[:, 1:] == genres[:, :-1]).mean(), 0.7, atol=0.01)


def test_users():
    users = Users.drawn(3000, seed=4)
    assert np.allclose(users.taste.sum(1), 1)
    assert np.allclose(users.taste.mean(0), 0.2, atol=0.02)
    assert 0.4 <= users.loyalty.min() < 0.41
    assert 0.89 < users.loyalty.max() <= 0.9
    assert np.array_equal(
        Users.drawn(2, 4).taste, users.taste[:2]
    )  # each has an address of its own


def test_dataset_1_by_hand():
    """The features of example i are those of request i, its label is request i + 1."""
    dataset, holdings = dealt()
    assert (dataset.shape, dataset.classes, dataset.vocabulary) == ((3, 32, 33), 100, 0)
    pace, shop = TASK.stores.pace(USERS, 1), catalogue("synthetic")
    lengths = np.diff(holdings.stream.offsets)
    requests = TASK.requests(shop, Users.drawn(USERS, 1), int(lengths.max()), 1, "train")
    place = int(holdings.stream.offsets[2]) + 7
    inputs, target = dataset.train.take(torch.tensor([place]))
    assert target.item() == requests[2, 8]
    assert torch.equal(inputs[0], features(shop, Users.drawn(USERS, 1))[2 * FILES + requests[2, 7]])
    assert (lengths >= pace.first).all()
    assert (lengths > pace.first).any()


def test_features():
    """Per pixel standardised pictures; the 33rd column: taste, likeness, genre, epsilon."""
    shop, users = catalogue("synthetic"), Users.drawn(3, 1)
    whole = features(shop, users)
    assert whole[0].numel() == 3168
    pixels = whole[:FILES, :, :, :32].double()
    assert torch.allclose(pixels.mean(0), torch.zeros(3, 32, 32).double(), atol=1e-6)
    assert torch.allclose(pixels.std(0, correction=0), torch.ones(3, 32, 32).double(), atol=1e-4)
    column = whole[2 * FILES + 41, :, :, 32].flatten().double().numpy()
    assert np.allclose(column[:5], (users.taste[2] - 0.2) / np.sqrt(0.16 / 2.5), atol=1e-5)
    assert column[5 + 41 % EACH] == pytest.approx(column[5:25].max())  # itself
    assert np.ptp(column[25:95]) == 0
    assert column[25] == pytest.approx(0.0, abs=1e-6)  # genre 2 of 0 to 4
    assert column[95] == pytest.approx((users.loyalty[2] - 0.65) / (0.5 / np.sqrt(12)), abs=1e-5)


def test_dataset_2_by_hand():
    task = replace(TASK, form="history", window=4)
    dataset, holdings = dealt(task)
    assert (dataset.shape, dataset.vocabulary) == ((4,), 100)
    lengths = np.diff(holdings.stream.offsets)
    requests = asked(task, Users.drawn(USERS, 1), int(lengths.max()))
    place = int(holdings.stream.offsets[3]) + 5
    inputs, target = dataset.train.take(torch.tensor([place]))
    assert inputs[0].tolist() == requests[3, 5:9].tolist()
    assert target.item() == requests[3, 9]


def test_streams_last_to_the_last_round_and_no_longer():
    _, holdings = dealt()
    ids = np.arange(USERS)
    _, end = holdings.span(ROUNDS - 1, ids)
    assert np.array_equal(end, holdings.stream.sizes(0, ids))
    assert np.array_equal(holdings.sizes(ROUNDS - 1, ids), holdings.pace.capacity)


def test_the_test_set_is_held_out_and_of_the_same_users():
    dataset, _ = dealt()
    assert len(dataset.test) == 40 * USERS
    users = dataset.test.rows // FILES
    assert torch.equal(users, torch.arange(USERS).repeat_interleave(40))
    again, _ = dealt(seed=1)
    other, _ = dealt(seed=2)
    assert torch.equal(again.test.targets, dataset.test.targets)
    assert not torch.equal(other.test.targets, dataset.test.targets)


def test_one_client_is_the_genie():
    _, apart = dealt()
    dataset, genie = dealt(replace(TASK, users=USERS), clients=1)
    for t in range(ROUNDS):
        mine = np.sort(genie.held(t, np.array([0])))
        assert np.array_equal(mine, np.sort(apart.held(t, np.arange(USERS))))
    assert len(dataset.train) == len(apart.stream.order)


def test_the_real_catalogue_is_used_where_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "cifar100_one_per_class"
    folder.mkdir()
    pictures = np.random.default_rng(0).integers(0, 256, (FILES, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(FILES)[::-1]
    np.savez(folder / "images.npz", x=pictures, y=labels)
    monkeypatch.setenv("FEDTIDE_DATA", str(tmp_path))
    shop = catalogue("auto")
    assert np.allclose(shop.images[0], pictures[99].transpose(2, 0, 1) / 255)
    assert not np.allclose(shop.images, catalogue("synthetic").images)
    monkeypatch.delenv("FEDTIDE_DATA")
    assert np.array_equal(catalogue("auto").images, catalogue("synthetic").images)


def test_likeness_is_a_cosine_within_the_genre():
    shop = catalogue("synthetic")
    assert shop.likeness.shape == (FILES, EACH)
    assert shop.likeness[45, 45 % EACH] == pytest.approx(1)
    assert shop.likeness[45, 3] == pytest.approx(cosine(shop.images[45], shop.images[43]))
    assert len({file // EACH for file in range(FILES)}) == GENRES


@pytest.mark.parametrize(
    ("settings", "groups", "where"),
    [
        ({"users": 5}, [Group(2)], "population.clients"),
        ({}, [Group(2, (1, 2))], "population must be one group of clients without labels"),
    ],
)
def test_populations_that_do_not_fit_the_users(settings, groups, where):
    with pytest.raises(ConfigError, match=where):
        replace(TASK, **settings).deal(lambda classes: groups, 2, 0)
