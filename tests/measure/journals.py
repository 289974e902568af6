"""Journals written by hand."""


def lines(*sessions, **changes):
    """A journal from the accuracies of each session."""
    found, t = [], 0
    for number, accuracies in enumerate(sessions):
        for r, accuracy in enumerate(accuracies):
            found.append(
                {
                    "t": t,
                    "session": number,
                    "round_in_session": r,
                    "accuracy": accuracy,
                    "loss": None if accuracy is None else 1 - accuracy,
                    "cohort": 3,
                    "steps": 6,
                    "bytes_up": 10,
                    "bytes_down": 20,
                    "seconds": {"train": 1.0},
                    **changes,
                }
            )
            t += 1
    return found
