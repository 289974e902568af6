"""Partitions: which client owns each example.

A partition returns one vector of owners, so no example can have two; -1 means that no client owns it. Labels
are those present in `targets`, in numeric order. Four different published splits are called Dirichlet; each
is a kind of its own.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedtide.core.errors import require
from fedtide.core.types import Dataset
from fedtide.data.mixtures import UNOWNED, Ints, Rng, cut, fill, log_dirichlet, topped_up

Keys = Ints | None  # the natural owner of each example

TRIES = 20  # draws of a hetero partition before clients below the minimum are topped up


class Partition(ABC):
    """Decides which client owns each example."""

    needs_labels: ClassVar[bool] = True  # False: `targets` may be zeros, where they are not labels

    def labels(self, dataset: Dataset, rng: Rng) -> Ints:
        """[N]: the whole number by which each training example is split: its label."""
        return dataset.labels

    @abstractmethod
    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        """[N]: the owner (0..clients-1) of each example, or -1; `keys` are the natural owners."""


@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Shuffled and cut into equal pieces: sizes differ by at most one, every example is owned."""

    needs_labels = False

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        return rng.permutation(_pieces(len(targets), clients))


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Clients draw one after another, each by its own mixture q of labels (Hsu et al., 2019; DIMC).

    Sizes differ by at most one (the first clients have one more), every example is owned. Identical in
    distribution to drawing examples one by one with q renormalised over the labels that have not run out
    (DIMC's code stops after 3C+5 redraws and takes any label left); the last clients get what is left over.
    """

    alpha: float = 0.3
    prior: bool = False  # q ~ Dir(alpha * p), p the labels' shares (Hsu), instead of Dir(alpha * 1)

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        share = np.unique(targets, return_counts=True)[1] / len(targets)
        alpha = self.alpha * (share if self.prior else np.ones_like(share))
        return fill(_by_label(targets), _pieces(len(targets), clients), alpha, clients, rng)


@dataclass(frozen=True, kw_only=True)
class DirichletBalanced(Partition):
    """Clients draw in random order, each by its own mixture of labels (FedDyn; FedLab, balanced).

    Every client gets exactly floor(N / clients) examples; no client owns the rest. Identical in distribution
    to the published loop: a random client that is not full draws labels until one has examples left.
    """

    alpha: float = 0.3

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        quota = len(targets) // clients
        # Sorting the arrival times of one Poisson process per client, each stopped at its quota, gives the
        # same order as picking at random among the clients that are not full yet.
        clocks = rng.standard_exponential((clients, quota)).cumsum(axis=1)
        turns = clocks.argsort(axis=None) // quota
        alpha = np.full(len(np.unique(targets)), self.alpha)
        return fill(_by_label(targets), turns, alpha, clients, rng)


@dataclass(frozen=True, kw_only=True)
class DirichletHetero(Partition):
    """Each label is cut among the clients by Dir(alpha) (NIID-Bench, MOON, FedLab noniid-labeldir).

    A client that holds N / clients examples gets no more. Every example is owned, sizes are uneven. Published
    code draws until every client holds `minimum` examples; here, after 20 draws, missing examples are moved
    from the clients that hold most. If there are too few examples for that minimum, half of the average
    number (and at least one example, if there is one for each client) is the minimum instead.
    """

    alpha: float = 0.3
    minimum: int = 10

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        require(self.minimum >= 0, "data.partition.minimum", "0 or more", self.minimum)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        minimum = self.minimum
        if minimum * clients > len(targets):
            minimum = max(len(targets) // (2 * clients), min(1, len(targets) // clients))
        labels = _by_label(targets)
        for _ in range(TRIES):
            owners = self._attempt(labels, len(targets), clients, rng)
            if np.bincount(owners, minlength=clients).min() >= minimum:
                break
        return topped_up(owners, clients, minimum, rng)

    def _attempt(self, labels: list[Ints], examples: int, clients: int, rng: Rng) -> Ints:
        owners = np.full(examples, UNOWNED)
        held = np.zeros(clients, dtype=np.int64)
        for members in labels:
            shares = log_dirichlet(np.full(clients, self.alpha), 1, rng)[0]
            # While examples are left, a client is below the average, so one share stays finite.
            shares[held * clients >= examples] = -np.inf
            takers = cut(shares, len(members), np.floor)
            owners[rng.permutation(members)] = takers
            held += np.bincount(takers, minlength=clients)
        return owners


@dataclass(frozen=True, kw_only=True)
class DirichletProportional(Partition):
    """Each label is cut in proportion to the clients' mixtures q ~ Dir(alpha) (FedAU, FAST).

    Every example is owned; a client gets consecutive examples of a label. Sizes vary, and may be 0.
    """

    alpha: float = 0.3

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        labels = _by_label(targets)
        shares = log_dirichlet(np.full(len(labels), self.alpha), clients, rng)
        owners = np.full(len(targets), UNOWNED)
        for members, share in zip(labels, shares.T, strict=True):
            owners[members] = cut(share, len(members), np.rint)
        return owners


@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Sorted by label and cut into shards, of which each client gets `per_client` (McMahan et al., 2017).

    Every example is owned: if the shards cannot be equal, the first are one example longer.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        require(self.per_client >= 1, "data.partition.per_client", "at least 1", self.per_client)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        most = len(targets) // clients
        must = f"at most {most}, the examples that each of {clients} clients can have"
        require(self.per_client <= most, "data.partition.per_client", must, self.per_client)
        deal = rng.permutation(clients * self.per_client) // self.per_client
        return deal[_along_labels(targets, len(deal))]


@dataclass(frozen=True, kw_only=True)
class Sorted(Partition):
    """Sorted by label and cut into one equal piece per client, so that client numbers follow the labels."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        return _along_labels(targets, clients)


@dataclass(frozen=True, kw_only=True)
class TwoShard(Partition):
    """Every client holds two different batches of labels (DIMC, the conference version).

    Shuffled labels form as many batches as there are clients (or labels, if fewer). Each batch is cut evenly
    among the clients that hold it: two, unless there are more clients than labels. The batches lie on a
    random ring and each client holds two neighbours; dealing batches one by one could leave the last client
    with the same batch twice.
    """

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        labels = _by_label(targets, 2, "two-shard")
        batches = min(len(labels), clients)
        fits = batches >= 2 and len(labels) % batches == 0 and clients % batches == 0
        must = f"at least 2 and a divisor or a multiple of the {len(labels)} labels"
        require(fits, "population.clients", must, clients, "Or choose kind = 'shards'.")
        rings = rng.permuted(np.tile(np.arange(batches), (clients // batches, 1)), axis=1)
        first, second = rings.ravel(), np.roll(rings, 1, axis=1).ravel()
        holders = [np.flatnonzero((first == b) | (second == b)) for b in range(batches)]
        batch_of_label = rng.permutation(_pieces(len(labels), batches))
        return _shared(labels, [(holders[batch],) for batch in batch_of_label])


@dataclass(frozen=True, kw_only=True)
class Half(Partition):
    """Half of the clients share the first half of the labels, the other half the others (DIMC)."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        labels = _by_label(targets, 2, "half")
        half = len(labels) // 2
        return _halves(labels, clients, half, len(labels) - half)


@dataclass(frozen=True, kw_only=True)
class PartialOverlap(Partition):
    """Each half of the clients shares 60% of the labels; 20% of the labels are common to both halves (DIMC).

    Of ten labels, the first half holds 0..5 and the second 4..9; 60% is rounded up. A common label is cut in
    two, one part for each half.
    """

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        labels = _by_label(targets, 3, "partial-overlap")
        alone = len(labels) * 4 // 10
        return _halves(labels, clients, alone, alone)


@dataclass(frozen=True, kw_only=True)
class Distinct(Partition):
    """Client i holds the i-th group of consecutive labels; no two clients share a label (DIMC)."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        names, label = np.unique(targets, return_inverse=True)
        must = f"a divisor of the {len(names)} labels, as no two clients share one"
        require(len(names) % clients == 0, "population.clients", must, clients, "Or try 'sorted'.")
        return _pieces(len(names), clients)[label]


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """One client per natural owner (subject, speaker), in the order of the keys.

    With fewer clients than keys, keys are chosen at random; the examples of the others are not used.
    """

    needs_labels = False

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        held = np.empty(0, dtype=np.int64) if keys is None else keys
        must = f"one natural owner (subject, speaker) for each of {len(targets)} examples"
        require(len(held) == len(targets), "data.keys", must, len(held), "Or choose another kind.")
        known = np.unique(held)
        must = f"at most {len(known)}, the natural owners in this data"
        require(clients <= len(known), "population.clients", must, clients)
        chosen = np.sort(rng.permutation(known)[:clients])
        place = np.searchsorted(chosen, held).clip(max=clients - 1)
        return np.where(chosen[place] == held, place, UNOWNED)


def _check_alpha(alpha: float) -> None:
    do = "Small values give each client few labels, large ones all labels alike."
    require(0 < alpha < math.inf, "data.partition.alpha", "a finite number above 0", alpha, do)


def _check(clients: int, examples: float = math.inf) -> None:
    require(clients >= 1, "population.clients", "at least 1", clients)
    must = f"at most {examples}, as this partition leaves no client without an example"
    require(clients <= examples, "population.clients", must, clients, "Or take more data.")


def _pieces(total: int, parts: int) -> Ints:
    """[total]: the piece of each item, cut in order into `parts` pieces whose sizes differ by one at most."""
    ids = np.arange(parts)
    return np.repeat(ids, total // parts + (ids < total % parts))


def _along_labels(targets: Ints, parts: int) -> Ints:
    """[N]: the piece of each example, when the examples are sorted by label and cut into `parts` pieces."""
    return _pieces(len(targets), parts)[targets.argsort(kind="stable").argsort()]


def _by_label(targets: Ints, least: int = 0, kind: str = "") -> list[Ints]:
    """The examples of each label, in the order of the data; `kind` needs `least` labels."""
    counts = np.unique(targets, return_counts=True)[1]
    must = f"given {least} or more labels for kind = {kind!r}"
    require(len(counts) >= least, "data.partition", must, len(counts), "Choose another kind.")
    return np.split(targets.argsort(kind="stable"), counts.cumsum())[:-1]


def _halves(labels: list[Ints], clients: int, first: int, last: int) -> Ints:
    """The `first` labels for one half of the clients, the `last` for the other, those between for both.

    With an odd number of clients the second half is larger by one.
    """
    require(clients >= 2, "population.clients", "at least 2, one for each half", clients)
    one, other = np.split(np.arange(clients), [clients // 2])
    both = len(labels) - first - last
    return _shared(labels, [(one,)] * first + [(one, other)] * both + [(other,)] * last)


def _shared(labels: list[Ints], holders: Sequence[tuple[Ints, ...]]) -> Ints:
    """Cut each label into equal parts for its groups of clients, and each part among its clients."""
    owners = np.full(sum(map(len, labels)), UNOWNED)
    for members, groups in zip(labels, holders, strict=True):
        for part, group in zip(np.array_split(members, len(groups)), groups, strict=True):
            must = f"few enough to share the {len(part)} examples of a label"
            require(len(group) <= len(part), "population.clients", must, len(group), "Take fewer.")
            owners[part] = group[_pieces(len(part), len(group))]
    return owners


BY_LABEL: dict[str, type] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "dirichlet-balanced": DirichletBalanced,
    "dirichlet-hetero": DirichletHetero,
    "dirichlet-proportional": DirichletProportional,
    "shards": Shards,
    "sorted": Sorted,
    "two-shard": TwoShard,
    "half": Half,
    "partial-overlap": PartialOverlap,
    "distinct": Distinct,
    "natural": Natural,
}
