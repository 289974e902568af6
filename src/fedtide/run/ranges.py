"""The [tune] section of a study: which settings are searched, in which ranges, with which budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

from fedtide.core.errors import ConfigError, choices, require
from fedtide.measure.metrics import TUNABLE
from fedtide.measure.names import PROBLEM
from fedtide.measure.searched import range_words
from fedtide.run.experiment import Experiment

TRIALS = 20  # of each setting of the grid, if the study names no budget
FIXED = ("seed", "evaluation", "checkpoint", "engine")  # sections that belong to no method
SHARE = 0.1  # of the training examples, where the study sets none apart for validation


@dataclass(frozen=True)
class Between:
    """All numbers from `low` to `high`; on a logarithmic scale with `log`, only whole ones with `whole`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """Is a setting's value in the range?"""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high


@dataclass(frozen=True)
class OneOf:
    """A few values; lists stand for tuples, as in a study file."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(_listed, self.values)))

    def holds(self, value: Any) -> bool:
        """Is it one of the values?"""
        return value in self.values

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values


Range = Between | OneOf
Ranges = Mapping[str, Range]  # by dotted setting, such as train.lr


@dataclass(frozen=True, kw_only=True)
class Tune:
    """The budget of a search and how it is spent: the same for every setting of the grid."""

    trials: int = 0  # for each setting of the grid; without any budget: 20
    updates: int = 0  # or uploads of clients, for each setting of the grid
    seed: tuple[int, ...] = ()  # of every trial; empty: one more than the largest of the study
    at_once: int = 4  # trials that are chosen together, from the results of those before
    prune: bool = True  # stop a trial that is worse than most after a quarter, half, three quarters
    score: str = ""  # the metric to choose by; empty: the one that the report begins with

    def __post_init__(self) -> None:
        for name in ("trials", "updates"):
            require(getattr(self, name) >= 0, f"tune.{name}", "at least 1", getattr(self, name))
        one = not (self.trials and self.updates)
        require(one, "tune.updates", "left out where tune.trials is set", self.updates)
        require(self.at_once >= 1, "tune.at_once", "at least 1", self.at_once)
        distinct = len(set(self.seed)) == len(self.seed)
        require(distinct, "tune.seed", "without repetition", list(self.seed))
        if self.score and self.score not in TUNABLE:
            raise ConfigError(
                f"tune.score: {self.score!r} is not known. {choices(self.score, TUNABLE)}"
            )

    @property
    def most(self) -> int:
        """The number of trials; 0 where client updates are counted instead."""
        return self.trials or (0 if self.updates else TRIALS)

    @property
    def budget(self) -> str:
        """The budget of each setting of the grid in words."""
        return f"{self.most} trials" if self.most else f"{self.updates:,} client updates"


def read_range(raw: Any, key: str) -> Range:
    """The range that a study file gives for a setting."""
    where = f"tune.{key}"
    if isinstance(raw, Sequence) and not isinstance(raw, str):
        require(len(raw) > 1, where, "a range, or a list of at least two values", raw)
        return OneOf(tuple(raw))
    example = "Write { low = 0.001, high = 1, log = true }, or a list of values."
    fits = isinstance(raw, Mapping) and {"low", "high"} <= raw.keys() <= {"low", "high", "log"}
    require(fits, where, "a range with low and high, or a list of values", raw, example)
    low, high, log = raw["low"], raw["high"], raw.get("log", False)
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    require(numbers and low < high, where, "a range from low to a higher number", raw, example)
    require(isinstance(log, bool), f"{where}.log", "true or false", log)
    require(not log or low > 0, f"{where}.low", "positive on a logarithmic scale", low)
    return Between(low, high, log, isinstance(low, int) and isinstance(high, int))


def checked(ranges: Ranges, e: Experiment, compared: Sequence[str] = ()) -> dict[str, Range]:
    """The ranges of one setting of the grid, if all their ends fit its experiment.

    `compared` are the settings that the grid decides.
    """
    found = {}
    for key, limits in ranges.items():
        section = key.partition(".")[0]
        of_problem = any(f"{key}.".startswith(f"{posed}.") for posed in PROBLEM)
        if of_problem or section in FIXED:
            raise ConfigError(
                f"tune.{key} must be a setting of the method. Got one of the problem that methods solve, or "
                f"of the run ({', '.join((*PROBLEM, *FIXED))}). Leave it out."
            )
        if any(f"{grid}.".startswith(f"{key}.") or key == grid for grid in compared):
            raise ConfigError(
                f"tune.{key}: the grid of the study decides this. Leave out one of the two."
            )
        is_float = isinstance(value_of(e, key), float)
        if isinstance(limits, Between):
            limits = replace(limits, whole=limits.whole and not is_float)
        for end in limits.ends:
            _check_end(e, key, end)
        found[key] = limits
    return found


def _check_end(e: Experiment, key: str, end: Any) -> None:
    try:
        changed(e, key, end)
    except ConfigError as error:
        raise ConfigError(f"tune.{key}: {end!r} is in the range, but {error}") from error


def value_of(e: Any, key: str) -> Any:
    """The setting that a dotted key names."""
    for part in key.split("."):
        e = getattr(e, _field(e, part, key))
    return _listed(e)


def changed(e: Any, key: str, value: Any, whole: str = "") -> Any:
    """The experiment with another value of the setting that a dotted key names."""
    part, _, rest = key.partition(".")
    name = _field(e, part, whole or key)
    if rest:
        value = changed(getattr(e, name), rest, value, whole or key)
    return replace(e, **{name: _frozen(value)})


def changed_all(e: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with other values of several settings."""
    for key, value in values.items():
        e = changed(e, key, value)
    return e


def as_json(limits: Range | Tune) -> dict[str, Any]:
    """A range as settings and history record it, with lists as JSON has them."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(limits).items()}


def in_words(limits: Range) -> str:
    """A range as terminal and report show it."""
    return range_words(as_json(limits))


def _field(value: Any, part: str, key: str) -> str:
    known = {f.name.rstrip("_"): f.name for f in fields(value)} if is_dataclass(value) else {}
    if part not in known:
        kind = type(value).__name__
        hint = choices(part, known) if known else "It has no settings."
        raise ConfigError(
            f"tune.{key}: {kind} has no setting {part!r}. {hint} "
            "A range for one method belongs into the table tune of its [[case]]."
        )
    return known[part]


def _listed(value: Any) -> Any:
    """A tuple as the list that a study file has for it."""
    return list(map(_listed, value)) if isinstance(value, tuple | list) else value


def _frozen(value: Any) -> Any:
    """A list of a study file as the tuple that it becomes."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
