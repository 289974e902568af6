"""Random draws behind the Dirichlet partitions: mixtures of labels, and examples drawn by them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rng = np.random.Generator

UNOWNED = -1  # the owner of an example that no client gets
BLOCK = 2**22  # numbers in memory at once while labels are drawn


def log_dirichlet(alpha: Floats, count: int, rng: Rng) -> Floats:
    """[count, len(alpha)]: logarithms of Dirichlet draws, because for tiny alpha all shares may be 0.0."""
    alpha = alpha.clip(1e-300, 1e300)  # beyond, draws look the same but overflow
    shape = (count, len(alpha))
    # Gamma(a) = Gamma(a + 1) * U^(1/a), and -log U is exponential.
    logs = np.log(rng.standard_gamma(alpha + 1, shape)) - rng.standard_exponential(shape) / alpha
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return logs


def cut(logs: Floats, total: int, whole: Callable[[Floats], Floats]) -> Ints:
    """[total]: the client at each position, when the positions are cut in proportion to exp(logs).

    `whole` rounds the ends of the pieces.
    """
    ends = np.exp(logs - logs.max()).cumsum()
    ends = whole(ends / ends[-1] * total)
    return np.searchsorted(ends[:-1], np.arange(total), side="right")


def fill(labels: list[Ints], turns: Ints, alpha: Floats, clients: int, rng: Rng) -> Ints:
    """[N]: the owner of each example, when clients draw in the order of `turns`.

    A client draws a label by its mixture of labels, then a random example of that label. `labels` lists the
    examples of each label; `alpha` is the parameter of the clients' mixtures.
    """
    shares = log_dirichlet(alpha, clients, rng)
    drawn = _labels_drawn(turns, shares, np.array([len(members) for members in labels]), rng)
    owners = np.full(sum(map(len, labels)), UNOWNED)
    for label, members in enumerate(labels):
        takers = turns[drawn == label]
        owners[rng.permutation(members)[: len(takers)]] = takers
    return owners


def _labels_drawn(turns: Ints, shares: Floats, room: Ints, rng: Rng) -> NDArray[np.uint]:
    """The label of each turn, when `room` examples of each label exist and empty labels are skipped.

    All turns draw at once. The first turn that finds its label empty closes the label: that turn and later
    ones that drew it draw again among the open labels. The others keep their draw, which has the right
    distribution given that it is not the closed label. Every pass closes a label, so passes are few.
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
        # Rounding must not lift a point to the end of the last label's interval, beyond which there is none.
        point = np.minimum(rng.random(len(top)) * top, np.nextafter(top, 0))
        drawn.append(names[(ladder <= point[:, None]).sum(axis=1)])
    return np.concatenate(drawn)


def topped_up(owners: Ints, clients: int, minimum: int, rng: Rng) -> Ints:
    """Give every client its minimum, one random example at a time from the client that holds most."""
    held = np.bincount(owners, minlength=clients)
    needy = np.repeat(np.arange(clients), (minimum - held).clip(min=0))
    piles = np.lexsort((rng.random(len(owners)), owners))  # client by client, in random order
    height = np.arange(len(owners)) - np.repeat(held.cumsum() - held, held)  # place in its pile
    owners[piles[(-height).argsort(kind="stable")[: len(needy)]]] = needy
    return owners
