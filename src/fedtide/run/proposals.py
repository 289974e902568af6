"""Values for the next trials of a search: spread evenly at first, then chosen by Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedtide.core.rng import key, stream
from fedtide.run.ranges import Between, OneOf, Range, Ranges
from fedtide.run.trial import Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

EVENLY = 8  # trials before the estimator, which needs some to begin with
DIGITS = 4  # of a chosen number


def proposed(
    ranges: Ranges, trials: Sequence[Trial], places: Sequence[int], seed: int
) -> list[dict[str, Any]]:
    """Values for the trials with these numbers: a function of the trials so far and of the seed alone."""
    even = [evenly(ranges, place, seed) for place in places if place < EVENLY]
    return even + _estimated(ranges, trials, len(places) - len(even), seed)


def evenly(ranges: Ranges, place: int, seed: int) -> dict[str, Any]:
    """The values at one place of a sequence that fills all ranges evenly, from a random beginning.

    Roberts' additive recurrence: steps of 1/phi, 1/phi^2 ..., where phi^(d+1) = phi + 1 for d ranges.
    """
    phi = 2.0
    for _ in range(50):
        phi = (1 + phi) ** (1 / (len(ranges) + 1))
    begin = stream(seed, "tune").random(len(ranges))
    found = {}
    for number, (name, limits) in enumerate(ranges.items()):
        share = (begin[number] + place / phi ** (number + 1)) % 1.0
        found[name] = _at(limits, share)
    return found


def _at(limits: Range, share: float) -> Any:
    """The value at this share of a range."""
    if isinstance(limits, OneOf):
        return limits.values[int(share * len(limits.values))]
    low, high = (limits.low, limits.high + 1) if limits.whole else (limits.low, limits.high)
    if limits.log:
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    return min(int(value), int(limits.high)) if limits.whole else _rounded(limits, value)


def _estimated(
    ranges: Ranges, trials: Sequence[Trial], count: int, seed: int
) -> list[dict[str, Any]]:
    """Values by a tree-structured Parzen estimator."""
    if not count:
        return []
    import optuna

    space = {name: _distribution(limits) for name, limits in ranges.items()}
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        own = key(seed, "tune", len(trials)) % 2**32
        sampler = optuna.samplers.TPESampler(seed=own, n_startup_trials=1)
        known = optuna.create_study(direction="maximize", sampler=sampler)
        known.add_trials([_frozen(trial, space, ranges) for trial in trials])
        asked = [known.ask(space).params for _ in range(count)]
    finally:
        optuna.logging.set_verbosity(level)
    return [
        {name: _value(limits, params[name]) for name, limits in ranges.items()} for params in asked
    ]


def _distribution(limits: Range) -> BaseDistribution:
    from optuna import distributions

    if isinstance(limits, OneOf):
        return distributions.CategoricalDistribution(range(len(limits.values)))
    if limits.whole:
        return distributions.IntDistribution(int(limits.low), int(limits.high), log=limits.log)
    return distributions.FloatDistribution(limits.low, limits.high, log=limits.log)


def _frozen(trial: Trial, space: dict[str, BaseDistribution], ranges: Ranges) -> FrozenTrial:
    """An earlier trial as Optuna knows it; one that was stopped has its scores up to that point."""
    from optuna.trial import TrialState, create_trial

    params = {
        name: limits.values.index(trial.values[name])
        if isinstance(limits, OneOf)
        else trial.values[name]
        for name, limits in ranges.items()
    }
    return create_trial(
        state=TrialState.PRUNED if trial.score is None else TrialState.COMPLETE,
        value=trial.score,
        params=params,
        distributions=space,
        intermediate_values={n: s for n, s in enumerate(trial.checks) if s is not None},
    )


def _value(limits: Range, param: Any) -> Any:
    """A parameter of Optuna as the setting's value; numbers are rounded to a few digits."""
    if isinstance(limits, OneOf):
        return limits.values[param]
    return param if limits.whole else _rounded(limits, param)


def _rounded(limits: Between, value: float) -> float:
    return min(max(float(f"{value:.{DIGITS}g}"), limits.low), limits.high)
