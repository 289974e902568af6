"""The [evaluation] section of a study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedtide.core.errors import TrainingError, require
from fedtide.measure.probes import PROBES, Needs, Probe
from fedtide.record.line import Line

TOO_HIGH = 10.0  # times the untrained model's test loss
IN_A_ROW = 3  # evaluations with such a loss: training has diverged


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When the global model is tested (after the last round always), on what, and what else is noted."""

    every: int = 1
    on: Literal["test", "validation"] = "test"  # validation examples: see data.validation
    probes: tuple[Probe, ...] = ()  # names, objects or functions
    fairness: bool = (
        False  # at the end: accuracy for clients that took part often, rarely and never
    )
    diverged: Literal["stop", "warn"] = "stop"  # what to do where the test loss grows without bound

    def due(self, t: int, length: int) -> bool:
        """Is the model tested after round t?"""
        return (t + 1) % self.every == 0 or t + 1 == length

    def judged(
        self, loss: float | None, before: Sequence[Line], untrained: Callable[[], float]
    ) -> dict[str, int]:
        """The journal's entry `diverged`: how many evaluations in a row, with this one, had too high a loss.

        No entry if this loss is acceptable. `untrained` is the untrained model's loss on the same examples;
        `before` are the earlier lines of the journal, so a resumed run decides like an uninterrupted one.
        """
        if loss is None or not loss > _too_high(untrained()):
            return {}
        last = next(
            (line.get("diverged", 0) for line in reversed(before) if line["loss"] is not None), 0
        )
        return {"diverged": last + 1}

    def check(self, line: Line) -> None:
        """Raise an error if training has diverged and the study stops then."""
        if self.diverged == "stop" and has_diverged([line]):
            raise TrainingError(
                f"round {line['t']}: the test loss must not be more than {TOO_HIGH:g} times the untrained "
                f"model's in {IN_A_ROW} evaluations running. Got {line['loss']:.4g}. Training has diverged: "
                "try a smaller train.lr, or clip gradients with train.optimiser.clip. "
                "evaluation.diverged = 'warn' lets such runs go on."
            )

    def __post_init__(self) -> None:
        require(self.every >= 1, "evaluation.every", "at least 1", self.every)
        object.__setattr__(self, "probes", tuple(_probe(each) for each in self.probes))

    def needs(self, what: Needs) -> bool:
        """Does a probe look at this?"""
        return any(probe.needs == what for probe in self.probes)


def _too_high(untrained: float) -> float:
    """The loss from which training has diverged; a user's own loss may be negative."""
    return TOO_HIGH * untrained if untrained >= 0 else (2 - TOO_HIGH) * untrained


def _probe(given: Any) -> Probe:
    """A probe as Python gives it: an object, a name or a function."""
    if isinstance(given, Probe):
        return given
    if adopted := Probe.adopt(given, {}):
        return adopted
    named = isinstance(given, str) and given in PROBES
    do = f"Use some of {sorted(PROBES)}, an object of a class of Probe, or a function of a finished round."
    require(named, "evaluation.probes", "probes", given, do)
    probe: Probe = PROBES[given]()
    return probe


def has_diverged(lines: Sequence[Line]) -> bool:
    """Did training diverge in one of these rounds?"""
    return any(line.get("diverged", 0) >= IN_A_ROW for line in lines)
