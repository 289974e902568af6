"""Partitions: which client owns each example.

An answer is one vector of owners, so no example can have two; -1 stands for nobody. Labels are the
ones present in `targets`, in numeric order. Four published splits are called Dirichlet: four kinds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.kinds import Kinds

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Keys = Ints | None
Rng = np.random.Generator

NOBODY = -1
TRIES = 20  # fresh draws of a hetero partition before its poorest clients are topped up
BLOCK = 2**22  # numbers held at once while labels are drawn


class Partition(ABC):
    """Says who owns each example."""

    @abstractmethod
    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        """[N]: the client (0..clients-1) of each example, or -1; keys are the natural owners."""


@dataclass(frozen=True, kw_only=True)
class Iid(Partition):
    """Shuffled and cut into equal pieces: sizes equal up to one, everything owned."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        return rng.permutation(_pieces(len(targets), clients))


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partition):
    """Clients fill one after another, each from its mixture q of labels (Hsu et al., 2019; DIMC).

    Sizes are equal up to one, remainders from client 0 on, everything owned. Identical in
    distribution to drawing one by one, q renormalised over the labels that have not run out (DIMC's
    code stops after 3C+5 redraws and takes any label left); the last clients get what others left.
    """

    alpha: float = 0.3
    prior: bool = False  # q ~ Dir(alpha * p), p the shares of the labels (Hsu), not Dir(alpha * 1)

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        share = np.unique(targets, return_counts=True)[1] / len(targets)
        alpha = self.alpha * (share if self.prior else np.ones_like(share))
        return _fill(targets, _pieces(len(targets), clients), alpha, clients, rng)


@dataclass(frozen=True, kw_only=True)
class DirichletBalanced(Partition):
    """Clients take turns at random, each with its mixture of labels (FedDyn; FedLab, balanced).

    Every client gets exactly floor(N / clients); the rest is nobody's. Identical in distribution to
    the published loop: a random client that is not full draws a label, again while it is empty.
    """

    alpha: float = 0.3

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        quota = len(targets) // clients
        # Poisson clocks that stop at their quota ring like uniform picks among those not full yet.
        clocks = rng.standard_exponential((clients, quota)).cumsum(axis=1)
        turns = clocks.argsort(axis=None) // quota
        alpha = np.full(len(np.unique(targets)), self.alpha)
        return _fill(targets, turns, alpha, clients, rng)


@dataclass(frozen=True, kw_only=True)
class DirichletHetero(Partition):
    """Each label is cut among the clients by Dir(alpha) (NIID-Bench, MOON, FedLab noniid-labeldir).

    Who holds N / clients gets no more. Everything is owned, sizes are uneven. Published code draws
    until every client holds `minimum`; here, after 20 draws, what is missing moves from the richest
    clients to the poorest. Where the data cannot give everyone `minimum`, half of the average (at
    least one example, if there is one for each) takes its place.
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
        return _topped_up(owners, clients, minimum, rng)

    def _attempt(self, labels: list[Ints], examples: int, clients: int, rng: Rng) -> Ints:
        owners = np.full(examples, NOBODY)
        held = np.zeros(clients, dtype=np.int64)
        for members in labels:
            shares = _log_dirichlet(np.full(clients, self.alpha), 1, rng)[0]
            # While examples are left someone is below the average, so one share stays finite.
            shares[held * clients >= examples] = -np.inf
            cut = _cut(shares, len(members), np.floor)
            owners[rng.permutation(members)] = cut
            held += np.bincount(cut, minlength=clients)
        return owners


@dataclass(frozen=True, kw_only=True)
class DirichletProportional(Partition):
    """Each label is cut in proportion to the clients' mixtures q ~ Dir(alpha) (FedAU, FAST).

    Everything is owned, in the order of the data; sizes vary and a client may be left with nothing.
    """

    alpha: float = 0.3

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        labels = _by_label(targets)
        shares = _log_dirichlet(np.full(len(labels), self.alpha), clients, rng)
        owners = np.full(len(targets), NOBODY)
        for members, share in zip(labels, shares.T, strict=True):
            owners[members] = _cut(share, len(members), np.rint)
        return owners


@dataclass(frozen=True, kw_only=True)
class Shards(Partition):
    """Sorted by label, cut into shards, `per_client` random ones each (McMahan et al., 2017).

    Everything is owned: where shards do not divide the data, the first are one example longer.
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
    """Sorted by label, one contiguous equal piece each: the clients' indices follow the labels."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients, len(targets))
        return _along_labels(targets, clients)


@dataclass(frozen=True, kw_only=True)
class TwoShard(Partition):
    """Every client holds two different batches of labels (DIMC, the conference version).

    Shuffled labels form as many batches as there are clients (or labels, if fewer), each cut evenly
    among its holders: two, unless there are more clients than labels. A client sits between two
    batches of a random ring, as dealing one by one may leave two equal batches for the last hand.
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
    """Half of the clients share the first half of the labels, the rest share the rest (DIMC)."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        labels = _by_label(targets, 2, "half")
        half = len(labels) // 2
        return _halves(labels, clients, half, len(labels) - half)


@dataclass(frozen=True, kw_only=True)
class PartialOverlap(Partition):
    """Two halves of the clients share 60% of the labels each, 20% in common (DIMC).

    Of ten labels, the first half holds 0..5 and the rest 4..9; 60% is rounded up. A common label is
    cut in two, one part for each half.
    """

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        labels = _by_label(targets, 3, "partial-overlap")
        alone = len(labels) * 4 // 10
        return _halves(labels, clients, alone, alone)


@dataclass(frozen=True, kw_only=True)
class Distinct(Partition):
    """Client i holds the i-th run of labels, and no label is shared (DIMC)."""

    def owners(self, targets: Ints, clients: int, rng: Rng, keys: Keys = None) -> Ints:
        _check(clients)
        names, label = np.unique(targets, return_inverse=True)
        must = f"a divisor of the {len(names)} labels, as no two clients share one"
        require(len(names) % clients == 0, "population.clients", must, clients, "Or try 'sorted'.")
        return _pieces(len(names), clients)[label]


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """One client per natural owner (subject, speaker), in the order of the keys.

    With fewer clients than keys, randomly chosen keys take part; other examples are nobody's.
    """

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
        return np.where(chosen[place] == held, place, NOBODY)


def _check_alpha(alpha: float) -> None:
    do = "Small values give each client few labels, large ones all labels alike."
    require(0 < alpha < math.inf, "data.partition.alpha", "a finite number above 0", alpha, do)


def _check(clients: int, examples: float = math.inf) -> None:
    require(clients >= 1, "population.clients", "at least 1", clients)
    must = f"at most {examples}, as this partition leaves no client without an example"
    require(clients <= examples, "population.clients", must, clients, "Or take more data.")


def _pieces(total: int, parts: int) -> Ints:
    """[total]: 0..parts-1 in order, each equally often, remainders from the first on."""
    ids = np.arange(parts)
    return np.repeat(ids, total // parts + (ids < total % parts))


def _along_labels(targets: Ints, parts: int) -> Ints:
    """[N]: the piece each example falls into when all are sorted by label."""
    return _pieces(len(targets), parts)[targets.argsort(kind="stable").argsort()]


def _by_label(targets: Ints, least: int = 0, kind: str = "") -> list[Ints]:
    """The examples of each label, in the order of the data; `kind` needs `least` labels."""
    counts = np.unique(targets, return_counts=True)[1]
    must = f"given {least} or more labels for kind = {kind!r}"
    require(len(counts) >= least, "data.partition", must, len(counts), "Choose another kind.")
    return np.split(targets.argsort(kind="stable"), counts.cumsum())[:-1]


def _halves(labels: list[Ints], clients: int, first: int, last: int) -> Ints:
    """First labels for half of the clients, last for the rest (and an odd one), others for both."""
    require(clients >= 2, "population.clients", "at least 2, one for each half", clients)
    one, other = np.split(np.arange(clients), [clients // 2])
    both = len(labels) - first - last
    return _shared(labels, [(one,)] * first + [(one, other)] * both + [(other,)] * last)


def _shared(labels: list[Ints], holders: Sequence[tuple[Ints, ...]]) -> Ints:
    """Cut labels into equal consecutive parts for groups of clients, and these for the clients."""
    owners = np.full(sum(map(len, labels)), NOBODY)
    for members, groups in zip(labels, holders, strict=True):
        for part, group in zip(np.array_split(members, len(groups)), groups, strict=True):
            must = f"few enough to share the {len(part)} examples of a label"
            require(len(group) <= len(part), "population.clients", must, len(group), "Take fewer.")
            owners[part] = group[_pieces(len(part), len(group))]
    return owners


def _log_dirichlet(alpha: Floats, count: int, rng: Rng) -> Floats:
    """[count, len(alpha)]: logarithms of Dirichlet draws, as for tiny alpha all may be 0.0."""
    alpha = alpha.clip(1e-300, 1e300)  # beyond, draws look the same but overflow
    shape = (count, len(alpha))
    # Gamma(a) = Gamma(a + 1) * U^(1/a), and -log U is exponential.
    logs = np.log(rng.standard_gamma(alpha + 1, shape)) - rng.standard_exponential(shape) / alpha
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return logs


def _cut(logs: Floats, total: int, whole: Callable[[Floats], Floats]) -> Ints:
    """[total]: the client at each position, when all are cut in proportion to exp(logs)."""
    ends = np.exp(logs - logs.max()).cumsum()
    ends = whole(ends / ends[-1] * total)
    return np.searchsorted(ends[:-1], np.arange(total), side="right")


def _fill(targets: Ints, turns: Ints, alpha: Floats, clients: int, rng: Rng) -> Ints:
    """Clients draw in the order of `turns`: a label by their mixture, then an example of it."""
    labels = _by_label(targets)
    shares = _log_dirichlet(alpha, clients, rng)
    drawn = _labels_drawn(turns, shares, np.array([len(members) for members in labels]), rng)
    owners = np.full(len(targets), NOBODY)
    for label, members in enumerate(labels):
        takers = turns[drawn == label]
        owners[rng.permutation(members)[: len(takers)]] = takers
    return owners


def _labels_drawn(turns: Ints, shares: Floats, room: Ints, rng: Rng) -> NDArray[np.uint]:
    """The label of each turn, when `room` examples of each exist and empty labels are skipped.

    All turns draw at once. The first turn that finds its label empty closes it: turns from there on
    that wanted it draw again among the open ones, the others keep their draw, which has the right
    law given that it is not the closed label. Every pass closes a label, so passes are few.
    """
    is_open = np.ones(len(room), dtype=np.bool_)
    drawn = _draw(turns, shares, is_open, rng)
    while True:
        count = np.bincount(drawn, minlength=len(room))
        over = np.flatnonzero(count > room)
        if len(over) == 0:
            return drawn
        by_label = drawn.argsort(kind="stable")
        start = count.cumsum() - count
        empty = over[by_label[start[over] + room[over]].argmin()]
        late = by_label[start[empty] + room[empty] : start[empty] + count[empty]]
        is_open[empty] = False
        drawn[late] = _draw(turns[late], shares, is_open, rng)


def _draw(turns: Ints, shares: Floats, is_open: NDArray[np.bool_], rng: Rng) -> NDArray[np.uint]:
    """An open label for each turn, in proportion to its client's shares."""
    names = np.flatnonzero(is_open).astype(np.min_scalar_type(len(is_open)))  # short ints sort fast
    drawn = []
    for part in np.array_split(turns, 1 + len(turns) * len(is_open) // BLOCK):
        logs = shares[part][:, is_open]
        ladder = np.exp(logs - logs.max(axis=1, keepdims=True)).cumsum(axis=1)
        top = ladder[:, -1]
        # Rounding must not lift a point to the top of its ladder, where no label is.
        point = np.minimum(rng.random(len(top)) * top, np.nextafter(top, 0))
        drawn.append(names[(ladder <= point[:, None]).sum(axis=1)])
    return np.concatenate(drawn)


def _topped_up(owners: Ints, clients: int, minimum: int, rng: Rng) -> Ints:
    """Give every client its minimum, one random example at a time from whoever is richest."""
    held = np.bincount(owners, minlength=clients)
    needy = np.repeat(np.arange(clients), (minimum - held).clip(min=0))
    piles = np.lexsort((rng.random(len(owners)), owners))
    height = np.arange(len(owners)) - np.repeat(held.cumsum() - held, held)  # of each in its pile
    owners[piles[(-height).argsort(kind="stable")[: len(needy)]]] = needy
    return owners


PARTITIONS = Kinds(
    "partitions",
    Partition,
    {
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
    },
)
