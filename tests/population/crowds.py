"""Sessions and crowds for tests of processes."""

from collections import Counter

import numpy as np

from fedtide.core.types import Crowd, Round, Session


def session(clients=100, first=0, number=0):
    ids = np.arange(clients) if isinstance(clients, int) else np.array(clients)
    return Session(number, ids, first, 10_000)


def crowd(clients=100, labels=None):
    counts = np.ones((clients, 10), dtype=np.int64) if labels is None else np.array(labels)
    return Crowd(len(counts), lambda: counts)


def cohorts(process, rounds, people=None, seed=0, accuracy=None):
    """The cohorts of so many rounds, the process listening as in a run."""
    people = people or session()
    who = process.start(crowd(int(people.clients.max()) + 1), seed)
    drawn = []
    for t in range(rounds):
        ids = process.draw(who, t, people, seed)
        drawn.append(ids.tolist())
        value = accuracy(t, ids) if accuracy else 0.5
        who = process.observe(who, Round(t, ids, {"train_accuracy": value}))
    return drawn


def shares(drawn, clients=100):
    """How much of all participations each client has."""
    counts = Counter(client for ids in drawn for client in ids)
    return np.array([counts[client] for client in range(clients)]) / sum(counts.values())
