import re
from collections import Counter
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError
from fedtide.data import mixtures, partition
from fedtide.data.groupings import PARTITIONS

DIRICHLET = [kind for kind in PARTITIONS if kind.startswith("dirichlet")]
EQUAL = ["iid", "dirichlet", "dirichlet-balanced", "sorted"]  # sizes equal up to one
OPEN = [*EQUAL, "dirichlet-hetero", "dirichlet-proportional"]  # take any labels and clients
COVERING = [kind for kind in PARTITIONS if kind not in ("dirichlet-balanced", "natural")]

labels = st.lists(st.integers(-3, 12), min_size=1, max_size=60).map(np.array)
seeds = st.integers(0, 2**32 - 1)
alphas = st.floats(5e-324, 1.7e308) | st.sampled_from([1e-300, 1e-5, 0.01, 0.3, 1, 100.0, 1e6])


def generator(seed=0):
    return np.random.default_rng(seed)


def build(kind, alpha=0.3, **more):
    return PARTITIONS[kind](**({"alpha": alpha} if kind in DIRICHLET else {}), **more)


def sizes(owners, clients):
    return np.bincount(owners[owners >= 0], minlength=clients)


def table(owners, targets, clients, classes):
    """[clients, classes]: how many examples of each label each client owns."""
    counts = np.zeros((clients, classes), dtype=int)
    np.add.at(counts, (owners, targets), 1)
    return counts


def twenty_of_each(classes=10):
    return generator(7).permutation(np.repeat(np.arange(classes), 20))


# Laws


@pytest.mark.parametrize("kind", OPEN)
@settings(max_examples=60, deadline=None)
@given(targets=labels, data=st.data(), seed=seeds, alpha=alphas)
def test_owners_are_clients_and_the_generator_decides(kind, targets, data, seed, alpha):
    clients = data.draw(st.integers(1, len(targets)))
    partition, before = build(kind, alpha), targets.copy()
    owners = partition.owners(targets, clients, generator(seed))
    assert owners.shape == targets.shape
    assert owners.dtype == np.int64
    assert owners.max() < clients
    assert owners.min() >= (0 if kind in COVERING else -1)
    assert np.array_equal(targets, before)
    assert np.array_equal(owners, partition.owners(targets, clients, generator(seed)))


@pytest.mark.parametrize("kind", EQUAL)
@settings(max_examples=60, deadline=None)
@given(targets=labels, data=st.data(), seed=seeds, alpha=alphas)
def test_equal_sizes(kind, targets, data, seed, alpha):
    clients = data.draw(st.integers(1, len(targets)))
    held = sizes(build(kind, alpha).owners(targets, clients, generator(seed)), clients)
    assert held.min() == len(targets) // clients
    exact = kind == "dirichlet-balanced" or len(targets) % clients == 0
    assert held.max() == held.min() + (0 if exact else 1)


@settings(max_examples=60, deadline=None)
@given(
    targets=labels, clients=st.integers(1, 70), minimum=st.integers(0, 20), seed=seeds, alpha=alphas
)
def test_hetero_gives_everyone_the_minimum_the_data_can_give(
    targets, clients, minimum, seed, alpha
):
    partition = build("dirichlet-hetero", alpha, minimum=minimum)
    owners = partition.owners(targets, clients, generator(seed))
    promised = minimum
    if minimum * clients > len(targets):
        promised = max(len(targets) // (2 * clients), int(len(targets) >= clients))
    assert owners.min() >= 0
    assert sizes(owners, clients).min() >= promised


@settings(max_examples=60, deadline=None)
@given(targets=labels, data=st.data(), seed=seeds)
def test_shards_differ_by_one_example_each(targets, data, seed):
    clients = data.draw(st.integers(1, len(targets)))
    per_client = data.draw(st.integers(1, len(targets) // clients))
    owners = build("shards", per_client=per_client).owners(targets, clients, generator(seed))
    held = sizes(owners, clients)
    assert held.sum() == len(targets)
    assert held.max() - held.min() <= per_client
    assert held.min() >= per_client


@settings(max_examples=60, deadline=None)
@given(keys=labels, data=st.data(), seed=seeds)
def test_natural_owners_stay_whole_and_in_order(keys, data, seed):
    known = np.unique(keys)
    clients = data.draw(st.integers(1, len(known)))
    owners = build("natural").owners(np.zeros_like(keys), clients, generator(seed), keys)
    owner_of = [np.unique(owners[keys == key]).tolist() for key in known]
    assert [found for found in owner_of if found != [-1]] == [[c] for c in range(clients)]


@pytest.mark.parametrize("kind", PARTITIONS)
def test_every_kind_works_with_its_defaults_and_is_frozen(kind):
    targets, keys = twenty_of_each(), np.arange(200) % 10
    partition = PARTITIONS[kind]()
    owners = partition.owners(targets, 10, generator(), keys)
    assert sizes(owners, 10).sum() == 200
    assert sizes(owners, 10).min() > 0 or kind == "dirichlet-proportional"
    with pytest.raises(FrozenInstanceError):
        partition.alpha = 1.0
    assert partition == PARTITIONS[kind]()
    assert all(field.kw_only for field in fields(partition))


@pytest.mark.parametrize("kind", DIRICHLET)
@pytest.mark.parametrize("alpha", [5e-324, 0.01, 1])
def test_thousands_of_clients_and_extreme_alpha_end(kind, alpha):
    targets = generator(1).integers(0, 10, 60_000)
    owners = build(kind, alpha).owners(targets, 10_000, generator())
    assert owners.min() >= 0
    assert sizes(owners, 10_000).sum() == 60_000


def test_draws_in_blocks_keep_their_promises(monkeypatch):
    monkeypatch.setattr(mixtures, "BLOCK", 64)
    owners = build("dirichlet", 0.05).owners(twenty_of_each(), 7, generator())
    assert sorted(sizes(owners, 7)) == [28] * 3 + [29] * 4


@pytest.mark.parametrize("kind", DIRICHLET)
def test_alpha_decides_how_many_labels_a_client_holds(kind):
    targets = generator(2).permutation(np.repeat(np.arange(10), 2_000))
    few = table(build(kind, 0.01).owners(targets, 20, generator(3)), targets, 20, 10)
    alike = table(build(kind, 1e6).owners(targets, 20, generator(3)), targets, 20, 10)
    main = few.max(axis=1) / few.sum(axis=1).clip(min=1)
    assert np.median(main) > 0.5
    # 20,000 / 20 / 10, within six standard deviations; the last client gets what is left.
    assert np.abs(alike[:-1] - 100).max() < 60


def test_prior_follows_the_shares_of_the_labels():
    targets = np.repeat([0, 1], [900, 9_100])
    by_prior = build("dirichlet", 1e6, prior=True).owners(targets, 10, generator())
    uniform = build("dirichlet", 1e6).owners(targets, 10, generator())
    assert table(by_prior, targets, 10, 2)[0, 0] == pytest.approx(90, abs=50)
    assert table(uniform, targets, 10, 2)[0, 0] == pytest.approx(500, abs=100)


# The fast draws against the published loops


def published_law(quotas, shares, room, interleaved):
    """The probability of each table (client x label), by following every path of the loop."""
    ends = Counter()

    def walk(held, chance):
        wanting = [c for c, row in enumerate(held) if sum(row) < quotas[c]]
        if not wanting:
            ends[held] += chance
            return
        for client in wanting if interleaved else wanting[:1]:
            left = [n - sum(row[k] for row in held) for k, n in enumerate(room)]
            mass = [q if n else 0.0 for q, n in zip(shares[client], left, strict=True)]
            for label, q in enumerate(mass):
                if q:
                    row = list(held[client])
                    row[label] += 1
                    after = (*held[:client], tuple(row), *held[client + 1 :])
                    picks = len(wanting) if interleaved else 1
                    walk(after, chance * q / sum(mass) / picks)

    walk(((0,) * len(room),) * len(quotas), 1.0)
    return ends


@pytest.mark.parametrize(
    ("kind", "quotas"), [("dirichlet", (3, 2, 2)), ("dirichlet-balanced", (2, 2, 2))]
)
def test_labels_have_the_law_of_the_published_loop(kind, quotas, monkeypatch):
    shares = np.array([[0.8, 0.15, 0.05], [0.7, 0.1, 0.2], [0.3, 0.6, 0.1]])
    targets = np.array([0, 1, 2, 1, 0, 1, 2])
    monkeypatch.setattr(mixtures, "log_dirichlet", lambda *_: np.log(shares))
    rng, runs, seen = generator(11), 4_000, Counter()
    for _ in range(runs):
        owners = build(kind).owners(targets, 3, rng)
        counts = table(owners[owners >= 0], targets[owners >= 0], 3, 3)
        seen[tuple(map(tuple, counts.tolist()))] += 1
    law = published_law(quotas, shares, (2, 3, 2), interleaved=kind == "dirichlet-balanced")
    assert sum(law.values()) == pytest.approx(1)
    assert set(seen) <= set(law)
    for end, chance in law.items():
        spread = np.sqrt(runs * chance * (1 - chance))
        assert abs(seen[end] - runs * chance) < 5 * spread + 3


# By hand


def test_iid_of_one_client_is_everything():
    assert build("iid").owners(np.array([4, 4, 2]), 1, generator()).tolist() == [0, 0, 0]


def test_sorted_cuts_the_sorted_labels():
    """3 + 2 + 2 examples: 0 (at 1), 0 (at 4), 1 (at 3) | 1 (at 5), 2 (at 0) | 2 (at 6), 5."""
    targets = np.array([2, 0, 5, 1, 0, 1, 2])
    owners = build("sorted").owners(targets, 3, generator())
    assert owners.tolist() == [1, 0, 2, 0, 0, 1, 2]


def test_shards_are_runs_of_the_sorted_labels():
    """Eight examples, two clients, two shards each: shards {1,4} {3,5} {0,6} {2,7} stay whole."""
    targets = np.array([2, 0, 3, 1, 0, 1, 2, 3])
    seen = set()
    for seed in range(40):
        owners = build("shards").owners(targets, 2, generator(seed))
        assert sizes(owners, 2).tolist() == [4, 4]
        assert all(owners[a] == owners[b] for a, b in [(1, 4), (3, 5), (0, 6), (2, 7)])
        seen.add(tuple(owners))
    assert len(seen) == 6  # 4 choose 2


def test_half_cuts_each_label_in_consecutive_pieces():
    """Labels 0, 1 for clients 0, 1; labels 2, 3, 4 for clients 2, 3, 4; each in equal runs."""
    targets = np.array([0] * 3 + [1] * 2 + [2] * 4 + [3] * 3 + [4] * 3)
    owners = build("half").owners(targets, 5, generator())
    assert owners.tolist() == [0, 0, 1, 0, 1, 2, 2, 3, 4, 2, 3, 4, 2, 3, 4]


def test_partial_overlap_of_ten_labels():
    """Ten clients: 0..3 for clients 0..4, 6..9 for clients 5..9, 4 and 5 halved between them."""
    targets = twenty_of_each()
    owners = build("partial-overlap").owners(targets, 10, generator())
    by_hand = np.zeros((10, 10), dtype=int)
    by_hand[:5, :4] = by_hand[5:, 6:] = 4
    by_hand[:, 4:6] = 2
    assert np.array_equal(table(owners, targets, 10, 10), by_hand)
    common = owners[np.flatnonzero(targets == 4)]
    assert common.tolist() == np.repeat(np.arange(10), 2).tolist()


@pytest.mark.parametrize(("classes", "held"), [(3, 2), (4, 3), (5, 3), (100, 60)])
def test_partial_overlap_rounds_sixty_percent_up(classes, held):
    targets = twenty_of_each(classes)
    counts = table(build("partial-overlap").owners(targets, 2, generator()), targets, 2, classes)
    assert (counts > 0).sum(axis=1).tolist() == [held, held]
    assert (counts[0, :held] > 0).all()
    assert (counts[1, -held:] > 0).all()


@pytest.mark.parametrize(("classes", "clients"), [(10, 10), (100, 10), (10, 5), (10, 30), (2, 2)])
def test_two_shard_gives_two_different_batches(classes, clients):
    targets = twenty_of_each(classes)
    counts = table(
        build("two-shard").owners(targets, clients, generator()), targets, clients, classes
    )
    batches = min(classes, clients)
    assert set((counts > 0).sum(axis=1)) == {2 * classes // batches}
    assert set((counts > 0).sum(axis=0)) == {2 * clients // batches}


def test_two_shard_is_random():
    targets = twenty_of_each()
    deals = {tuple(build("two-shard").owners(targets, 10, generator(seed))) for seed in range(9)}
    assert len(deals) == 9


def test_distinct_gives_runs_of_labels():
    targets = np.array([7, 1, 3, 3, 9, 1, 5, 5])  # 1, 3, 5, 7, 9 are five labels
    assert build("distinct").owners(targets, 5, generator()).tolist() == [3, 0, 1, 1, 4, 0, 2, 2]
    assert build("distinct").owners(targets[:4], 1, generator()).tolist() == [0, 0, 0, 0]
    assert build("distinct").owners(np.arange(100), 10, generator()).tolist() == [
        label // 10 for label in range(100)
    ]


def test_proportional_cuts_by_hand(monkeypatch):
    """Column 0: .2/.8, .2/.8, .4/.8 of 4 -> ends 1, 2, 4. Column 1: .8, .8, .6 of 2.2 of 5.

    -> cumulative 1.82, 3.64, 5 -> rounded ends 2, 4, 5.
    """
    mixtures = np.array([[0.2, 0.8], [0.2, 0.8], [0.4, 0.6]])
    monkeypatch.setattr(partition, "log_dirichlet", lambda *_: np.log(mixtures))
    targets = np.array([0, 1, 0, 1, 0, 1, 0, 1, 1])
    owners = build("dirichlet-proportional").owners(targets, 3, generator())
    assert owners[targets == 0].tolist() == [0, 1, 2, 2]
    assert owners[targets == 1].tolist() == [0, 0, 1, 1, 2]


def test_hetero_cuts_by_hand(monkeypatch):
    """Label 0: .7, .2, .1 of 8 -> ends 5.6, 7.2, 8, cut to 5, 7, 8. Client 0 has 12 / 3: closed.

    Label 1: .2, .1 of .3 of 4 -> ends 0, 2.67, 4, cut to 0, 2, 4.
    """
    monkeypatch.setattr(partition, "log_dirichlet", lambda *_: np.log([[0.7, 0.2, 0.1]]))
    targets = np.repeat([0, 1], [8, 4])
    owners = build("dirichlet-hetero", minimum=0).owners(targets, 3, generator())
    assert table(owners, targets, 3, 2).tolist() == [[5, 0], [2, 2], [1, 2]]


def test_natural_clients_follow_the_keys():
    keys = np.array([30, 10, 20, 10, 30])
    owners = build("natural").owners(np.zeros(5, dtype=int), 3, generator(), keys)
    assert owners.tolist() == [2, 0, 1, 0, 2]
    chosen = {
        tuple(build("natural").owners(np.zeros(5, dtype=int), 2, generator(seed), keys))
        for seed in range(30)
    }
    assert chosen == {(1, 0, -1, 0, 1), (-1, 0, 1, 0, -1), (1, -1, 0, -1, 1)}


def test_unequal_partitions_take_no_examples():
    nothing = np.empty(0, dtype=np.int64)
    for kind in ("dirichlet-hetero", "dirichlet-proportional"):
        assert build(kind).owners(nothing, 3, generator()).shape == (0,)


# Errors


@pytest.mark.parametrize("kind", DIRICHLET)
@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive_and_finite(kind, alpha):
    message = f"data.partition.alpha must be a finite number above 0. Got {alpha!r}. Small values"
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(kind, alpha)


@pytest.mark.parametrize("clients", [0, -2])
@pytest.mark.parametrize("kind", PARTITIONS)
def test_there_must_be_clients(kind, clients):
    message = rf"population\.clients must be at least [12].*\. Got {clients}\."
    with pytest.raises(ConfigError, match=message):
        build(kind).owners(twenty_of_each(), clients, generator(), np.arange(200))


@pytest.mark.parametrize("kind", [*EQUAL, "shards"])
def test_equal_sizes_need_an_example_for_each_client(kind):
    message = "population.clients must be at most 3, as this partition leaves no client"
    with pytest.raises(ConfigError, match=re.escape(message) + ".* Got 4. Or take more data."):
        build(kind).owners(np.array([0, 1, 2]), 4, generator())


@pytest.mark.parametrize(
    ("kind", "targets", "clients", "message"),
    [
        ("shards", [0, 1, 2], 2, "data.partition.per_client must be at most 1, the examples that"),
        ("two-shard", [0, 0], 2, "given 2 or more labels for kind = 'two-shard'. Got 1."),
        ("two-shard", [0, 1, 2, 3], 3, "a divisor or a multiple of the 4 labels. Got 3."),
        ("two-shard", [0, 1], 1, "population.clients must be at least 2 and a divisor"),
        ("two-shard", [0, 1], 2, "few enough to share the 1 examples of a label. Got 2."),
        ("half", [3, 3, 3], 2, "data.partition must be given 2 or more labels for kind = 'half'."),
        ("half", [0, 1], 1, "population.clients must be at least 2, one for each half. Got 1."),
        ("half", [0, 1, 1], 4, "few enough to share the 1 examples of a label. Got 2. Take fewer."),
        ("partial-overlap", [0, 1], 2, "given 3 or more labels for kind = 'partial-overlap'."),
        ("partial-overlap", [0, 1, 2], 1, "at least 2, one for each half. Got 1."),
        ("distinct", [0, 1, 2, 3], 3, "population.clients must be a divisor of the 4 labels"),
        ("distinct", [0, 1], 4, "a divisor of the 2 labels, as no two clients share one. Got 4."),
        ("natural", [0, 1], 1, "data.keys must be one natural owner (subject, speaker) for each"),
    ],
)
def test_what_does_not_fit_is_refused(kind, targets, clients, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(kind).owners(np.array(targets), clients, generator())


@pytest.mark.parametrize(
    ("keys", "clients", "message"),
    [
        ([1, 2], 1, "for each of 3 examples. Got 2. Or choose another kind."),
        ([5, 5, 6], 3, "population.clients must be at most 2, the natural owners in this data."),
    ],
)
def test_natural_owners_must_be_known_and_enough(keys, clients, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        build("natural").owners(np.zeros(3, dtype=int), clients, generator(), np.array(keys))
