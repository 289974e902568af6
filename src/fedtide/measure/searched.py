"""What a search for settings found: chosen values, how flat the optimum is, ranges that were too narrow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedtide.measure.names import names
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.record.folder import StudyFolder, word

NEAR = 0.01  # a score that much below the best one is nearly as good: a point of accuracy, or this share
EDGE = 0.05  # share of a range at each end that counts as its edge


class ChosenSetting(NamedTuple):
    """One setting that was searched for one method."""

    key: str  # such as train.lr
    limits: Mapping[str, Any]  # low, high, log and whole; or values
    value: Any  # that was chosen
    tried: Sequence[
        tuple[Any, float]
    ]  # values of finished trials with their scores, more is better
    scale: Scale = ACCURACY  # the score

    @property
    def range(self) -> str:
        """The range in words."""
        return range_words(self.limits)

    @property
    def near(self) -> list[Any]:
        """The values of trials that scored nearly as high as the best one."""
        best = max(score for _, score in self.tried)
        near = NEAR if self.scale.is_accuracy else NEAR * abs(best)
        return [value for value, score in self.tried if score >= best - near]

    @property
    def flatness(self) -> str:
        """The values that are nearly as good as the chosen one, in words."""
        found, kinds = self.near, {type(value) for value in self.near}
        if kinds <= {int, float}:
            low, high = min(found), max(found)
            values = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        else:
            values = ", ".join(dict.fromkeys(map(word, found)))
        return f"{values} ({len(found)} of {len(self.tried)})"

    @property
    def edge(self) -> str:
        """`lower` or `upper` if the chosen value lies at that edge of its range; otherwise empty."""
        if "values" in self.limits:
            numbers = [v for v in self.limits["values"] if isinstance(v, int | float)]
            if len(numbers) < 3 or len(numbers) < len(self.limits["values"]):
                return ""
            low, high, place = min(numbers), max(numbers), self.value
        else:
            scale = math.log if self.limits.get("log") else float
            low, high, place = (
                scale(x) for x in (self.limits["low"], self.limits["high"], self.value)
            )
        share = (place - low) / (high - low)
        return "lower" if share <= EDGE else "upper" if share >= 1 - EDGE else ""


class Method(NamedTuple):
    """The search for one setting of the grid."""

    name: str
    settings: Mapping[str, Any]
    choices: Sequence[ChosenSetting]
    trials: Sequence[Mapping[str, Any]]
    scale: Scale = ACCURACY  # the score

    def count(self, ended: str) -> int:
        """How many trials finished, were pruned or diverged."""
        return sum(trial["ended"] == ended for trial in self.trials)

    @property
    def score(self) -> float | None:
        """The score of the chosen values, negative where less is better."""
        return max((t["score"] for t in self.trials if t["score"] is not None), default=None)

    @property
    def updates(self) -> int:
        """Uploads of clients in all trials."""
        return sum(trial["updates"] for trial in self.trials)


class Searched(NamedTuple):
    """A search over a study's grid."""

    budget: str
    seed: Sequence[int]
    score: Sequence[str]
    methods: Sequence[Method]
    scale: Scale = ACCURACY

    @property
    def cautions(self) -> list[str]:
        """A sentence for every chosen value at the edge of its range."""
        return [
            f"The best {choice.key} of {method.name}, {word(choice.value)}, lies at the {choice.edge} edge "
            f"of its range ({choice.range}): a better one may lie beyond. Widen the range."
            for method in self.methods
            for choice in method.choices
            if choice.edge
        ]

    @property
    def sentence(self) -> str:
        """How the values were chosen."""
        seeds = f"seed{'s' * (len(self.seed) > 1)} {', '.join(map(str, self.seed))}"
        metric = " or ".join(name.replace("_", " ") for name in self.score)
        return (
            f"Values were chosen by fedtide tune: {self.budget} of each setting with {seeds}, scored by "
            f"{metric} on validation examples."
        )


def range_words(limits: Mapping[str, Any]) -> str:
    """A range, as JSON has it, in words: `0.001 to 1, log`."""
    if "values" in limits:
        return ", ".join(map(word, limits["values"]))
    scale = ", log" if limits.get("log") else ""
    return f"{limits['low']:g} to {limits['high']:g}{scale}"


def searched(tuned: Mapping[str, Any]) -> Searched | None:
    """The search that tuned.json describes; None if its history is not there."""
    cells = [cell for cell in tuned.get("cells", []) if cell.get("trials")]
    if not cells:
        return None
    said, scale = names([cell["settings"] for cell in cells]), Scale(**tuned.get("scale", {}))
    methods = [
        Method(name, cell["settings"], list(_choices(cell, scale)), cell["trials"], scale)
        for name, cell in zip(said, cells, strict=True)
    ]
    return Searched(
        str(tuned.get("budget", "")), tuned.get("seed", []), tuned.get("score", []), methods, scale
    )


def read(folder: StudyFolder) -> Searched | None:
    """The search that chose the settings of a study; None if there was none."""
    known = (folder.path / "tuned.json").is_file()
    return searched(folder.read_json("tuned.json")) if known else None


def _choices(cell: Mapping[str, Any], scale: Scale) -> Iterator[ChosenSetting]:
    finished = [trial for trial in cell["trials"] if trial["score"] is not None]
    for key, limits in cell["ranges"].items():
        tried = [(trial["values"][key], trial["score"]) for trial in finished]
        yield ChosenSetting(key, limits, cell["values"][key], tried, scale)
