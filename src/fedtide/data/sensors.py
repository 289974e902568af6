"""UCI-HAR, activities from the sensors of a phone (Anguita et al., ESANN 2013): two ways to test on it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import DataError
from fedtide.data.files import Parts, damaged, labelled, npz

HAR_TEST = (2, 4, 9, 10, 12, 13, 18, 20, 24)  # the canonical test subjects
HALF = 64  # steps that a window has in common with the next one
TEST_SHARE = 0.2  # of each activity of each person

Signals = NDArray[np.float32]
Ints = NDArray[np.int64]


def uci_har(folder: Path, classes: int) -> Parts:
    """Windows of nine channels x 128 steps; `keys` are subjects, the canonical nine are the test part."""
    path, signals, labels, subjects = _windows(folder)
    test = np.isin(subjects, HAR_TEST)
    return Parts(
        labelled(signals[~test], labels[~test], classes, path),
        labelled(signals[test], labels[test], classes, path),
        subjects[~test],
    )


def uci_har_people(folder: Path, classes: int) -> Parts:
    """All 30 people: the last fifth of each activity of each person is that person's test part.

    Windows overlap by half. A training window that shares a half with a test window is left out.
    """
    path, signals, labels, subjects = _windows(folder)
    after = _following(signals)
    test = np.zeros(len(labels), dtype=bool)
    for person in np.unique(subjects):
        for activity in range(classes):
            held = np.flatnonzero((subjects == person) & (labels == activity))
            test[_in_time(held, after)[len(held) - int(TEST_SHARE * len(held)) :]] = True
    train = ~test
    pairs = np.flatnonzero(after >= 0)
    cut = test[pairs] != test[after[pairs]]
    train[pairs[cut]] = train[after[pairs[cut]]] = False
    train &= ~test
    return Parts(
        labelled(signals[train], labels[train], classes, path),
        labelled(signals[test], labels[test], classes, path),
        subjects[train],
        test_keys=subjects[test],
    )


def _following(signals: Signals) -> Ints:
    """[N]: the window that begins with the second half of each window, or -1."""
    begins = {window[:, :HALF].tobytes(): place for place, window in enumerate(signals)}
    found = [begins.get(window[:, HALF:].tobytes(), -1) for window in signals]
    return np.array(found, dtype=np.int64)


def _in_time(held: Ints, after: Ints) -> Ints:
    """Windows of one recording in the order of time, as far as they follow from each other."""
    here, follows = set(held.tolist()), set(after[held].tolist())
    order: list[int] = []
    for first in [*sorted(here - follows), *sorted(here)]:  # first those that begin a stretch
        while first in here:
            here.remove(first)
            order.append(first)
            first = int(after[first])
    return np.array(order, dtype=np.int64)


def _windows(folder: Path) -> tuple[Path, Signals, Ints, Ints]:
    """The file, its windows, their labels and the people they are of."""
    found = sorted(folder.glob("*.npz"))
    if not found:
        what = "an npz file with x [N, 9, 128], y (0-5) and subject (1-30) is missing"
        raise DataError(f"{folder}: {what}. Put it there.")
    signals, labels, subjects = npz(found[0], "x", "y", "subject")
    if signals.shape[1:] != (9, 128) or signals.dtype.kind != "f":
        got = f"{signals.dtype} of shape {list(signals.shape)}"
        raise damaged(found[0], f"x must be floats of shape [N, 9, 128]. Got {got}")
    if subjects.dtype.kind not in "iu" or not subjects.shape == labels.shape == signals.shape[:1]:
        got = f"lengths {[array.shape[:1] for array in (signals, labels, subjects)]}"
        raise damaged(found[0], f"x, y and subject must have one row per example. Got {got}")
    signals = signals.astype(np.float32)
    if not np.isfinite(signals).all():
        raise damaged(found[0], "x holds values that are not finite")
    return found[0], signals, labels, subjects.astype(np.int64)
