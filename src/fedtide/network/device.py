"""The clients' processors, radios, energy budgets and batteries, drawn for each client by its id."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import uniforms
from fedtide.core.types import Ids

Floats = NDArray[np.float64]
Span = float | tuple[float, ...]  # one number for all clients, or [low, high] to draw from

# Settings that must be above zero for a client to compute and send at all; the others may be zero.
POSITIVE = ("cpu_ghz", "flops_per_cycle", "cycles_per_bit", "capacitance", "battery_joules")


class Devices(NamedTuple):
    """The devices of a cohort in SI units; each field is [U]."""

    hertz: Floats  # f_k, or its upper bound f_u,max
    flops_per_cycle: Floats  # chi
    cycles_per_bit: Floats  # c_u
    capacitance: Floats  # xi_k, v
    transmit_watts: Floats  # P_k^tx, or its upper bound p_u,max
    receive_watts: Floats  # P_k^rx
    budget: Floats  # e_u,bd: joules per round
    battery: Floats  # joules when full
    charging_watts: Floats


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The clients' devices; the defaults are Table I of the journal version of the DIMC paper.

    Every setting is one number, or [low, high] from which each client draws its own, uniformly and once.
    `budget_joules` is the most that a client spends in one round. With `battery_joules` it also has a battery
    of that capacity: at first a share `battery_share` of it is full, every round drains it, and
    `charging_watts` fills it as time goes by.
    """

    cpu_ghz: Span = 1.0
    flops_per_cycle: Span = 8.0
    cycles_per_bit: Span = (25.0, 40.0)  # of OSAFL; used only with computing.kind = "cycles"
    capacitance: Span = 1e-28
    transmit_dbm: Span = 23.0  # 200 mW
    receive_watts: Span = 0.1
    budget_joules: Span | None = None
    battery_joules: Span | None = None
    battery_share: Span = 1.0
    charging_watts: Span = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None:
                _check(f"network.fleet.{name}", name, value)

    def devices(self, ids: Ids, seed: int) -> Devices:
        """The devices of these clients."""

        def drawn(name: str) -> Floats:
            return self._drawn(name, ids, seed)

        return Devices(
            hertz=1e9 * drawn("cpu_ghz"),
            flops_per_cycle=drawn("flops_per_cycle"),
            cycles_per_bit=drawn("cycles_per_bit"),
            capacitance=drawn("capacitance"),
            transmit_watts=watts(drawn("transmit_dbm")),
            receive_watts=drawn("receive_watts"),
            budget=drawn("budget_joules"),
            battery=drawn("battery_joules"),
            charging_watts=drawn("charging_watts"),
        )

    def full(self, ids: Ids, seed: int) -> Floats:
        """The joules in each client's battery before the first round."""
        return self._drawn("battery_share", ids, seed) * self._drawn("battery_joules", ids, seed)

    def _drawn(self, name: str, ids: Ids, seed: int) -> Floats:
        value = getattr(self, name)
        if value is None:  # no limit
            return np.full(len(ids), np.inf)
        low, high = ends(value)
        if low == high:
            return np.full(len(ids), low)
        return low + (high - low) * uniforms(seed, "fleet", name, ids=ids, count=1)[:, 0]


def ends(span: Span) -> tuple[float, float]:
    """The lowest and the highest number of a span."""
    return (min(span), max(span)) if isinstance(span, tuple) else (span, span)


def watts(dbm: Floats) -> Floats:
    """Decibels above a milliwatt, as watts."""
    return np.asarray(1e-3 * 10 ** (dbm / 10))


def _check(where: str, name: str, value: Span) -> None:
    pair = value if isinstance(value, tuple) else (value, value)
    require(len(pair) == 2, where, "a number, or two as [low, high]", list(pair))
    require(pair[0] <= pair[1], where, "[low, high] with low <= high", list(pair))
    if name in POSITIVE:
        require(pair[0] > 0, where, "positive", value, "At 0 a client could not take part.")
    elif name == "battery_share":
        require(pair[0] >= 0 and pair[1] <= 1, where, "a share in [0, 1]", value)
    elif name != "transmit_dbm":
        require(pair[0] >= 0, where, "zero or positive", value)
