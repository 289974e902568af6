"""The accuracy of the final model for clients that took part often, rarely and never.

A client's accuracy is that on its own test examples. Where their owners are unknown, a proxy stands for it:
the mean of the labels' test accuracies, weighted by the client's own shares of labels. Often means in at
least as many rounds as the mean client, rarely in fewer, never in none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BINS = 20  # of the histogram, at most


def participations(cohorts: Iterable[Sequence[int]], clients: int) -> Ints:
    """The number of rounds in which each client took part: [clients]."""
    ids = np.array([client for cohort in cohorts for client in cohort], dtype=np.int64)
    return np.bincount(ids, minlength=clients)


def by_shares(labels: Ints, by_label: Mapping[int, float]) -> NDArray[np.float64]:
    """A proxy of each client's accuracy: that of its labels [clients, classes], weighted by their numbers.

    Not a number for clients that hold none of the labels in the test set.
    """
    known = sorted(by_label)
    held = labels[:, known]
    some = held.sum(1) > 0
    found = np.full(len(labels), np.nan)
    found[some] = held[some] @ np.array([by_label[label] for label in known]) / held[some].sum(1)
    return found


def fairness(
    counts: Ints, scores: NDArray[np.float64], by_label: Mapping[int, float], proxy: bool = True
) -> dict[str, Any]:
    """Size and mean accuracy of each group and of all clients, and the histogram, for the journal.

    `counts` [clients] are numbers of rounds, `scores` [clients] accuracies, of which unknown ones are left
    out; `by_label` has the test accuracy of every label in the test set.
    """
    known, some = sorted(by_label), np.isfinite(scores)
    accuracy = scores[some]
    often = counts[some] >= max(counts.mean(), 1)
    never = counts[some] == 0
    groups = {"often": often, "rarely": ~often & ~never, "never": never, "all": some[some]}
    return {
        "groups": {name: _group(accuracy[mask]) for name, mask in groups.items()},
        "labels": {str(label): by_label[label] for label in known},
        "histogram": _histogram(counts),
        "proxy": proxy,
    }


def _group(accuracy: NDArray[np.float64]) -> dict[str, Any]:
    """The number of clients, their mean accuracy, and the mean accuracy of the worst tenth."""
    worst = np.sort(accuracy)[: -(-len(accuracy) // 10)]
    return {
        "clients": len(accuracy),
        "accuracy": float(accuracy.mean()) if len(accuracy) else None,
        "worst": float(worst.mean()) if len(worst) else None,
    }


def _histogram(counts: Ints) -> dict[str, list[int]]:
    """How many clients took part in how many rounds; a bin extends from its `rounds` to the next bin's."""
    width = max(1, -(-(int(counts.max()) + 1) // BINS))
    return {
        "rounds": list(range(0, int(counts.max()) + 1, width)),
        "clients": np.bincount(counts // width).tolist(),
    }
