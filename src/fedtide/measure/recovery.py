"""How fast a run recovers after each start, and how long clients wait, beside a reference run.

The reference is one row of the grid, the first one of its problem unless the study names another. Its starts
give the windows in which all rows of the problem are compared, so that methods which start in other rounds,
or never, are measured in the same rounds; its best scores give the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from fedtide.core.errors import require
from fedtide.measure.scale import ACCURACY, Scale
from fedtide.measure.windows import EvaluatedLine, Window, evaluated, transition_scores, windows
from fedtide.record.line import Line

COSTS: dict[str, Callable[[Line], float]] = {
    "seconds": lambda line: float(line.get("latency", 0)),
    "joules": lambda line: float(line.get("joules", 0)),
    "bytes": lambda line: float(line["bytes_up"] + line["bytes_down"]),
}


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """When a run has recovered from a change of clients: the table [recovery] of a study.

    It has once its score has made the share `rho` of the way from that of a model that has learnt nothing to
    the best score that the reference reaches in the same window. `reference` are settings of the grid, such
    as { start = "previous" }; empty: the first row.
    """

    rho: float = 0.95
    reference: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(0 < self.rho <= 1, "recovery.rho", "in (0, 1]", self.rho)

    def fits(self, settings: Mapping[str, Any]) -> bool:
        """Does a row with these settings have those of the reference? "x" also fits {kind = "x", ...}."""
        return fits(self.reference, settings)


def fits(wanted: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Does a row have these settings? "x" also fits a table such as {kind = "x", R = 10}."""
    return all(key in settings and _same(value, settings[key]) for key, value in wanted.items())


def _same(wanted: Any, value: Any) -> bool:
    if isinstance(value, Mapping) and isinstance(wanted, str):
        return bool(wanted == value.get("kind"))
    return bool(wanted == value)


def time_to_reach(
    tested: Sequence[EvaluatedLine], window: Window, target: float, scale: Scale = ACCURACY
) -> int:
    """T_rho, Eq. 31: in which round of a window, from 1, a run reaches the target; else its length + 1."""
    reached = (line.t for line in window.of(tested) if scale.is_reached(line.score, target))
    return next(reached, window.end) - window.first + 1


def accumulated_gain(
    proposed: Sequence[EvaluatedLine], other: Sequence[EvaluatedLine], scale: Scale = ACCURACY
) -> float:
    """G_total, Eq. 32: by how much the proposed method's score is better, summed over rounds both tested."""
    known = {line.t: line.score for line in other}
    return float(
        sum([scale.sign * (line.score - known[line.t]) for line in proposed if line.t in known])
    )


class TestedRun(NamedTuple):
    """A run's journal, and the rounds in which its model was tested."""

    lines: Sequence[Line]
    tested: Sequence[EvaluatedLine]

    def target(self, window: Window, rho: float, scale: Scale) -> float:
        """The score to reach in a window if this is the run of the reference.

        As in Eq. 31, the way begins at 0 for accuracy; for other scores, at that of the untrained model, if
        the reference gets better than that.
        """
        tested = window.of(self.tested)
        floor, best = (
            scale.floor(self.lines[tested[0].t]),
            scale.best(line.score for line in tested),
        )
        target = floor + rho * (best - floor)
        return target if scale.is_reached(best, target) else best

    def spent(self, cost: Callable[[Line], float]) -> list[float]:
        """What the first 0, 1, 2 ... rounds took."""
        return [0.0, *accumulate(map(cost, self.lines))]


class Compared(NamedTuple):
    """A run beside that of the reference."""

    windows: Sequence[Window]  # of the reference in which both were tested
    metrics: dict[str, float | list[float]]  # lists have one entry per window


def against(
    lines: Sequence[Line],
    reference: Sequence[Line],
    recovery: Recovery,
    transition_rounds: int,
    scale: Scale = ACCURACY,
) -> Compared:
    """Compare a run with the reference's run, in the windows between the starts of the latter.

    `recovery_rounds` is T_rho, `recovery_seconds`, `_joules` and `_bytes` what these rounds took, costs of
    the start included; of a window without recovery, one more round is counted at the mean price.
    `accumulated_gain` is what the reference gained over this run.
    """
    own = TestedRun(lines, evaluated(lines, scale))
    other = TestedRun(reference, evaluated(reference, scale))
    shared = [
        window._replace(end=min(window.end, lines[-1]["t"] + 1))
        for window in windows(reference)
        if window.of(own.tested) and window.of(other.tested)
    ]
    rounds = [
        time_to_reach(own.tested, window, other.target(window, recovery.rho, scale), scale)
        for window in shared
    ]
    metrics: dict[str, float | list[float]] = {
        scale.metric("transition_"): transition_scores(own.tested, transition_rounds, shared),
        "recovery_rounds": [float(count) for count in rounds],
        **dict(_prices(own, shared, rounds)),
        "accumulated_gain": [
            accumulated_gain(window.of(other.tested), window.of(own.tested), scale)
            for window in shared
        ],
        **_waits(own, other, recovery.rho, scale),
    }
    return Compared(shared, metrics)


def _prices(
    run: TestedRun, shared: Sequence[Window], rounds: Sequence[int]
) -> Iterator[tuple[str, list[float]]]:
    """What so many rounds of each window took, of costs that are not zero."""
    for name, cost in COSTS.items():
        spent = run.spent(cost)
        if spent[-1]:
            prices = [_price(spent, w, count) for w, count in zip(shared, rounds, strict=True)]
            yield f"recovery_{name}", prices


def _price(spent: Sequence[float], window: Window, rounds: int) -> float:
    length = window.end - window.first
    price = spent[window.first + min(rounds, length)] - spent[window.first]
    return price * (length + 1) / length if rounds > length else price


class Stay(NamedTuple):
    """Clients that came in the same round and left in the same round, or were there until the end."""

    window: Window
    clients: int


def stays(lines: Sequence[Line]) -> Iterator[Stay]:
    """The stays of clients that came after the first ones."""
    here = {line["t"]: line["arrived"]["clients"] for line in lines if "arrived" in line}
    opening = next((t for t, clients in here.items() if clients), 0)
    for line in lines:
        for since, clients in zip(*line.get("left", {}).get("since", ((), ())), strict=True):
            here[since] -= clients
            if since > opening:
                yield Stay(Window(since, line["t"]), clients)
    for since, clients in here.items():
        if since > opening and clients:
            yield Stay(Window(since, lines[-1]["t"] + 1), clients)


def _waits(own: TestedRun, other: TestedRun, rho: float, scale: Scale) -> dict[str, float]:
    """How long clients wait for a model that serves them: T_rho in the rounds of each client's stay.

    The target is that of the rounds in which the client is there. `waiting_rounds` and `waiting_seconds` are
    means over the clients that came after the first ones, `unserved` is the share that left before or
    still waited when the run ended.
    """
    left = [line["left"] for line in own.lines if "left" in line]
    if any("since" not in one and one["clients"] for one in left):
        return {}  # a journal of 0.1 does not say when those that left had come
    seconds = own.spent(COSTS["seconds"])
    clients = rounds = time = unserved = 0.0
    for stay, count in stays(own.lines):
        if stay.of(own.tested) and stay.of(other.tested):
            wait = time_to_reach(own.tested, stay, other.target(stay, rho, scale), scale)
            clients += count
            rounds += count * wait
            time += count * _price(seconds, stay, wait)
            unserved += count * (wait > stay.end - stay.first)
    if not clients:
        return {}
    waits = {"waiting_rounds": rounds / clients, "unserved": unserved / clients}
    return waits | ({"waiting_seconds": time / clients} if seconds[-1] else {})
