"""Training credit: what learns from training sees, accuracy or minus the loss."""


def fall(before: float, now: float) -> float:
    """By how much training credit has fallen; relative to what it was, unless that was a share in [0, 1]."""
    return before - now if 0 <= before <= 1 else (before - now) / abs(before)
