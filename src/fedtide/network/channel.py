"""Radio channels: the clients' positions, the gain of their channels, and the time of transmissions.

3GPP TR 38.901, Tables 7.4.1-1 (path loss, shadowing) and 7.4.2-1 (line of sight), as the DIMC paper's
journal version uses it ([J], Appendix A). Distances in metres, carrier in GHz, losses in dB.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, log10, pi, sin
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import ConfigError, require
from fedtide.core.rng import fades, normals, uniforms
from fedtide.core.types import Ids
from fedtide.network.cost import bits_per_second, mean_bits_per_second, seconds_for
from fedtide.network.device import watts
from fedtide.network.fading import LIGHT, Address, correlation, slot_seconds

Floats = NDArray[np.float64]


class Moment(NamedTuple):
    """The time at which a cohort uses its channel."""

    seed: int
    t: int  # the round
    clock: float  # seconds since the run began


class Send(NamedTuple):
    """A transmission in one direction."""

    way: Literal["down", "up"]
    bits: float
    band: Floats  # [U]: hertz
    watts: Floats  # [U]
    begins: Floats  # [U]: seconds since the round began


@dataclass(frozen=True, kw_only=True)
class Channel(ABC):
    """The channels between the server and its clients."""

    @abstractmethod
    def seconds(self, send: Send, ids: Ids, when: Moment) -> Floats:
        """Seconds until all bits have arrived; infinite if they never do."""

    def per_watt(self, band: Floats, ids: Ids, when: Moment) -> Floats:
        """The signal-to-noise ratio per watt that a client sends, constant during the round."""
        raise ConfigError(
            "network.channel must be a radio channel if clients choose their power. "
            f"Got {type(self).__name__}. Use 'umi' or 'uma', or set network.allocation = 'fixed'."
        )

    def check(self) -> None:
        """Raise an error if a file that this channel needs is missing."""
        return


@dataclass(frozen=True, kw_only=True)
class RadioCell(Channel):
    """A round cell with the server in the middle and clients uniformly distributed over it ([J] Eq. 38).

    `place`: a client stays where it is ("still"), has a new random place in every round ("redrawn"), or walks
    straight on at `speed_mps` and turns back at the edge ("moving"), which keeps the distribution uniform.
    `shadow`: shadowing is drawn once per "client", anew in every "round", or along the "path" of a moving
    client, where it decorrelates within `shadow_metres`. `fading`: slot by slot as in [J] Eqs. 26 and 39
    ("slots"), one gain for a whole round ("block"), the rate averaged over the fading ("average"), or "none".
    """

    carrier_ghz: float = 3.5
    radius_m: float = 250.0
    nearest_m: float = 10.0
    server_height_m: float = 10.0
    client_height_m: float = 1.5
    environment_height_m: float = 1.0
    sight: Literal["line", "blocked", "mixed"] = "line"
    shadow_db: float | None = None  # standard deviation of the shadowing; None: that of TR 38.901
    noise_dbm_hz: float = -174.0
    place: Literal["still", "redrawn", "moving"] = "still"
    shadow: Literal["client", "round", "path"] = "client"
    shadow_metres: float = 10.0
    fading: Literal["slots", "block", "average", "none"] = "slots"
    slot_ms: float = 0.5
    speed_mps: float = 10.0

    SIGMA: ClassVar[tuple[float, float]]  # dB: line of sight, blocked

    def __post_init__(self) -> None:
        for name in ("carrier_ghz", "nearest_m", "slot_ms", "shadow_metres"):
            value = getattr(self, name)
            require(value > 0, f"network.channel.{name}", "positive", value)
        nearest, radius = self.nearest_m, self.radius_m
        require(
            radius > nearest, "network.channel.radius_m", f"above nearest_m = {nearest}", radius
        )
        for name in ("server_height_m", "client_height_m"):
            value, least = getattr(self, name), self.environment_height_m
            must = f"above environment_height_m = {least}"
            require(value > least, f"network.channel.{name}", must, value)
        shadow = self.shadow_db
        require(shadow is None or shadow >= 0, "network.channel.shadow_db", "zero or more", shadow)
        require(self.speed_mps >= 0, "network.channel.speed_mps", "zero or more", self.speed_mps)

    @abstractmethod
    def line_db(self, flat: Floats, far: Floats) -> Floats:
        """The path loss with a line of sight; `flat` and `far` are the 2D and 3D distances."""

    @abstractmethod
    def blocked_db(self, far: Floats) -> Floats:
        """The path loss without a line of sight; if `line_db` is larger, that one counts."""

    @abstractmethod
    def line_probability(self, flat: Floats) -> Floats:
        """The probability of a line of sight at this distance."""

    @property
    def break_point(self) -> float:
        """d'_BP = 4 h'_BS h'_UT f_c / c, with heights above the environment."""
        server = self.server_height_m - self.environment_height_m
        client = self.client_height_m - self.environment_height_m
        return 4 * server * client * self.carrier_ghz * 1e9 / LIGHT

    @property
    def lift(self) -> float:
        """h_BS - h_UT."""
        return self.server_height_m - self.client_height_m

    def distances(self, ids: Ids, when: Moment) -> Floats:
        """The clients' distances from the server in the plane."""
        address: tuple[str | int, ...] = (
            ("place", when.t) if self.place == "redrawn" else ("place",)
        )
        draw = uniforms(when.seed, *address, ids=ids, count=2)
        if self.place == "moving":
            return self._walked(draw, when.clock)
        inner, outer = self.nearest_m**2, self.radius_m**2
        return np.asarray(np.sqrt(inner + draw[:, 0] * (outer - inner)))  # [J] Eq. 38, inverted

    def _walked(self, draw: Floats, clock: float) -> Floats:
        """Distances of clients that walk straight on and turn back at the edge of the cell.

        A path that is reflected at the edge consists of chords with the same distance from the middle, so the
        position on it is taken modulo the length of a chord.
        """
        radius, angle = self.radius_m * np.sqrt(draw[:, 0]), 2 * np.pi * draw[:, 1]
        aside, along = radius * np.sin(angle), radius * np.cos(angle)
        half = np.sqrt(self.radius_m**2 - aside**2)
        along = (along + self.speed_mps * clock + half) % (2 * half) - half
        return np.asarray(np.maximum(np.hypot(aside, along), self.nearest_m))

    def loss_db(self, ids: Ids, when: Moment) -> Floats:
        """Path loss and shadowing together."""
        flat = self.distances(ids, when)
        far = np.hypot(flat, self.lift)
        line = self.line_db(flat, far)
        blocked = np.maximum(line, self.blocked_db(far))
        clear = np.full(len(ids), self.sight == "line")
        if self.sight == "mixed":
            draw = uniforms(when.seed, "sight", *self._redrawn(when), ids=ids, count=1)[:, 0]
            clear = draw < self.line_probability(flat)
        line_sigma, blocked_sigma = self.SIGMA
        sigma = np.where(clear, line_sigma, blocked_sigma)
        if self.shadow_db is not None:
            sigma = np.full(len(ids), self.shadow_db)
        return np.asarray(np.where(clear, line, blocked) + sigma * self._shadows(ids, when))

    def _redrawn(self, when: Moment) -> tuple[int, ...]:
        return () if self.place == "still" else (when.t,)

    def _shadows(self, ids: Ids, when: Moment) -> Floats:
        """The shadowing of each client, as standard normal numbers."""

        def drawn(*address: int) -> Floats:
            return normals(when.seed, "shadow", *address, ids=ids, count=1)[:, 0]

        if self.shadow == "path":
            stretch, part = divmod(self.speed_mps * when.clock / self.shadow_metres, 1.0)
            angle = part * pi / 2  # cos^2 + sin^2 = 1 keeps the variance
            return cos(angle) * drawn(int(stretch)) + sin(angle) * drawn(int(stretch) + 1)
        return drawn(when.t) if self.shadow == "round" or self.place == "redrawn" else drawn()

    def per_watt(self, band: Floats, ids: Ids, when: Moment) -> Floats:
        if self.fading not in ("none", "block"):
            raise ConfigError(
                "network.channel.fading must be 'none' or 'block' if clients choose their power, which needs "
                f"a gain that is known beforehand. Got {self.fading!r}."
            )
        gain = self._large_scale(band, ids, when)
        return gain * self._block(ids, when) if self.fading == "block" else gain

    def _large_scale(self, band: Floats, ids: Ids, when: Moment) -> Floats:
        """The gain of path loss and shadowing over the noise: Psi / (N_0 W), [J] Eq. 34."""
        psi = 10 ** (-self.loss_db(ids, when) / 10)
        return psi / (watts(np.asarray(self.noise_dbm_hz)) * band)

    def _block(self, ids: Ids, when: Moment) -> Floats:
        h = fades(when.seed, "fading", when.t, ids=ids, count=1)[:, 0]
        return h.real**2 + h.imag**2

    def seconds(self, send: Send, ids: Ids, when: Moment) -> Floats:
        snr = send.watts * self._large_scale(send.band, ids, when)
        if self.fading == "slots":
            slot = 1e-3 * self.slot_ms
            rho = correlation(self.speed_mps, self.carrier_ghz, slot)
            address = Address(when.seed, send.way, when.t, ids)
            return slot_seconds(send.bits, send.band, snr, rho, slot, address)
        if self.fading == "average":
            return seconds_for(send.bits, mean_bits_per_second(send.band, snr))
        snr = snr * self._block(ids, when) if self.fading == "block" else snr
        return seconds_for(send.bits, bits_per_second(send.band, snr))


@dataclass(frozen=True, kw_only=True)
class Umi(RadioCell):
    """A cell in a street canyon: TR 38.901 UMi, [J] Eqs. 33-40."""

    SIGMA: ClassVar[tuple[float, float]] = (4.0, 7.82)

    def line_db(self, flat: Floats, far: Floats) -> Floats:
        carrier = 20 * log10(self.carrier_ghz)
        near = 32.4 + 21 * np.log10(far) + carrier  # [J] Eq. 36
        bend = 9.5 * log10(self.break_point**2 + self.lift**2)
        beyond = 32.4 + 40 * np.log10(far) + carrier - bend  # [J] Eq. 37
        return np.where(flat <= self.break_point, near, beyond)  # [J] Eq. 35

    def blocked_db(self, far: Floats) -> Floats:
        height = 0.3 * (self.client_height_m - 1.5)
        return 22.4 + 35.3 * np.log10(far) + 21.3 * log10(self.carrier_ghz) - height

    def line_probability(self, flat: Floats) -> Floats:
        return _near(flat, 36.0)


@dataclass(frozen=True, kw_only=True)
class Uma(RadioCell):
    """A cell with a mast above the roofs: TR 38.901 UMa."""

    server_height_m: float = 25.0
    nearest_m: float = 35.0
    radius_m: float = 500.0

    SIGMA: ClassVar[tuple[float, float]] = (4.0, 6.0)

    def line_db(self, flat: Floats, far: Floats) -> Floats:
        carrier = 20 * log10(self.carrier_ghz)
        bend = 9 * log10(self.break_point**2 + self.lift**2)
        near = 28 + 22 * np.log10(far) + carrier
        beyond = 28 + 40 * np.log10(far) + carrier - bend
        return np.where(flat <= self.break_point, near, beyond)

    def blocked_db(self, far: Floats) -> Floats:
        height = 0.6 * (self.client_height_m - 1.5)
        return 13.54 + 39.08 * np.log10(far) + 20 * log10(self.carrier_ghz) - height

    def line_probability(self, flat: Floats) -> Floats:
        return _near(flat, 63.0)


def _near(flat: Floats, reach: float) -> Floats:
    """The probability of a line of sight in both scenarios, for clients below 13 m."""
    share = 18 / np.maximum(flat, 18.0)
    return share + np.exp(-flat / reach) * (1 - share)
