"""The costs of computing and sending: the formulas of two papers, each with its equation number.

[J] "Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure", section VI and
Appendix A. [O] "Online-Score-Aided Federated Learning", section II-C. Every quantity is in SI units:
seconds, hertz, watts, joules, bits.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.types import Work
from fedtide.network.device import Devices

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]
NEVER = 1e9  # seconds, more than thirty years: a slower transmission never ends


class Load(NamedTuple):
    """What one local step asks of a processor."""

    cycles: Floats  # [U]
    capacitance: Floats  # [U]: joules per cycle and squared hertz


@dataclass(frozen=True, kw_only=True)
class Computing(ABC):
    """A model of what a local step asks of a client's processor."""

    @abstractmethod
    def load(self, devices: Devices, work: Work) -> Load:
        """The cycles of a local step, and the energy of a cycle."""


@dataclass(frozen=True, kw_only=True)
class Flops(Computing):
    """[J] Eqs. 27-28: N_p phi B / chi cycles per step, xi f^2 joules per cycle.

    `per_parameter` is phi, the operations per parameter and example; with 0 the operations of the study's
    model are counted, forward and backward. N_p is the number of parameters, B the batch size, chi and xi are
    the fleet's `flops_per_cycle` and `capacitance`.
    """

    per_parameter: float = 0.0

    def __post_init__(self) -> None:
        where = "network.computing.per_parameter"
        require(self.per_parameter >= 0, where, "zero or positive", self.per_parameter)

    def load(self, devices: Devices, work: Work) -> Load:
        each = self.per_parameter * work.parameters if self.per_parameter else work.flops()
        return Load(each * work.batch_size / devices.flops_per_cycle, devices.capacitance)


@dataclass(frozen=True, kw_only=True)
class Cycles(Computing):
    """[O] section II-C: n n_bar c_u s_u cycles per step, 0.5 v f^2 joules per cycle.

    `bits_per_example` is s_u; 0 means the size of an input of the study's data. `examples_per_step` is
    n n_bar; 0 means the batch size. c_u and v are the fleet's `cycles_per_bit` and `capacitance`.
    """

    bits_per_example: float = 0.0
    examples_per_step: int = 0

    def __post_init__(self) -> None:
        for name, default in (
            ("bits_per_example", "the size of an input"),
            ("examples_per_step", "the batch size"),
        ):
            value, must = getattr(self, name), f"positive, or 0 for {default}"
            require(value >= 0, f"network.computing.{name}", must, value)

    def load(self, devices: Devices, work: Work) -> Load:
        bits = self.bits_per_example or work.bits_per_example
        examples = self.examples_per_step or work.batch_size
        return Load(examples * devices.cycles_per_bit * bits, 0.5 * devices.capacitance)


def compute_seconds(steps: Steps, cycles: Floats, hertz: Floats) -> Floats:
    """T^comp, [J] Eq. 27; t_cp of [O]."""
    return steps * cycles / hertz


def compute_joules(steps: Steps, load: Load, hertz: Floats) -> Floats:
    """E^comp, [J] Eq. 28; e_cp of [O]."""
    return load.capacitance * steps * load.cycles * hertz**2


def bits_per_second(band: Floats, snr: Floats) -> Floats:
    """R, [J] Eqs. 24-25 (40): band in hertz, signal over noise in that band as a ratio."""
    return np.asarray(band * np.log2(1 + snr))


def seconds_for(bits: float, rate: Floats) -> Floats:
    """The seconds that `bits` take at this rate; infinite if more than thirty years."""
    return np.where(rate * NEVER > bits, bits / np.maximum(rate, 1e-300), np.inf)


def mean_bits_per_second(band: Floats, snr: Floats) -> Floats:
    """The mean of R over Rayleigh fading, |h|^2 ~ Exp(1): W exp(1/snr) E1(1/snr) / ln 2."""
    return np.asarray(band / np.log(2) * _scaled_e1(1 / np.maximum(snr, 1e-300)))


def _scaled_e1(z: Floats) -> Floats:
    """exp(z) E1(z): its series below 1, its continued fraction above (Abramowitz, Stegun: 5.1.11, 22)."""
    small = np.minimum(z, 1.0)
    term, series = np.ones_like(small), -np.euler_gamma - np.log(small)
    for k in range(1, 25):
        term = term * -small / k
        series = series - term / k
    large = np.maximum(z, 1.0)
    fraction = np.zeros_like(large)
    for k in range(60, 0, -1):
        fraction = k / (1 + k / (large + fraction))
    return np.where(z < 1, np.exp(small) * series, 1 / (large + fraction))
