"""What a trace of visits looks like: clients, stays, presence and turnover over the rounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.population.visits import Visits

Counts = NDArray[np.int64]


class Description(NamedTuple):
    """Numbers about visits; a client's overlapping visits count as one."""

    clients: int  # that have a visit
    visits: int
    rounds: int  # until the last visit that ends has ended
    lasting: int  # visits without an end
    returning: int  # clients with several visits
    stay: float  # mean number of rounds of a visit that ends
    gap: float  # mean number of rounds between two visits of a client
    present: Counts  # [rounds]: clients that exist
    arrived: Counts  # [rounds]: clients that come in this round
    left: Counts  # [rounds]: clients that were there in the round before

    @property
    def turnover(self) -> float:
        """The mean share of the clients, of a round and the one before together, that came or went."""
        before = np.append(0, self.present[:-1])
        both = before + self.arrived
        change = (self.arrived + self.left)[1:]
        shares = change / np.maximum(both[1:], 1)
        return float(shares.mean()) if len(shares) else 0.0


def described(visits: Visits, most: int) -> Description:
    """Describe visits; those that leave in round `most` have no end."""
    client, arrive, leave = joined(visits)
    ends = leave < most
    rounds = int(max(leave[ends].max(initial=0), arrive.max(initial=0) + 1))
    came = np.bincount(arrive, minlength=rounds)
    went = np.bincount(leave[ends], minlength=rounds + 1)[:rounds]
    again = client[1:] == client[:-1]
    gaps = (arrive[1:] - leave[:-1])[again]
    return Description(
        clients=len(np.unique(client)),
        visits=len(client),
        rounds=rounds,
        lasting=int((~ends).sum()),
        returning=len(np.unique(client[1:][again])),
        stay=float((leave - arrive)[ends].mean()) if ends.any() else float("nan"),
        gap=float(gaps.mean()) if len(gaps) else float("nan"),
        present=(came - went).cumsum(),
        arrived=came,
        left=went,
    )


def joined(visits: Visits) -> Visits:
    """Visits in the order of clients and times, with those of a client that overlap or meet joined."""
    order = np.lexsort((visits.leave, visits.arrive, visits.client))
    client, arrive, leave = (each[order] for each in visits)
    # The latest departure of a client so far: departures of later clients are shifted beyond all others.
    shift = np.unique(client, return_inverse=True)[1] * (int(leave.max(initial=0)) + 1)
    latest = np.maximum.accumulate(leave + shift) - shift
    is_new = np.append(True, (client[1:] != client[:-1]) | (arrive[1:] > latest[:-1]))
    firsts = np.flatnonzero(is_new[: len(client)])
    lasts = np.append(firsts[1:], len(client)) - 1
    return Visits(client[firsts], arrive[firsts], latest[lasts])
