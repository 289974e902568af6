"""Small-scale fading: the time of a transmission over a channel whose gain changes from slot to slot."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.rng import fades
from fedtide.core.types import Ids
from fedtide.network.cost import bits_per_second, mean_bits_per_second, seconds_for

Floats = NDArray[np.float64]

LIGHT = 3e8  # metres per second, as in the paper
CHUNK = 128  # slots that are computed at once
MOST_SLOTS = 10**6  # a transmission that would take more slots is computed from the mean rate


class Address(NamedTuple):
    """The address of a transmission's random numbers."""

    seed: int
    way: str  # "down" or "up"
    t: int
    ids: Ids


def correlation(speed: float, carrier_ghz: float, slot: float) -> float:
    """The correlation of neighbouring slots: rho = J0(2 pi f_d tau), f_d = v f_c / c ([J] Eq. 39)."""
    doppler = speed * carrier_ghz * 1e9 / LIGHT
    angle = torch.tensor(2 * np.pi * doppler * slot, dtype=torch.float64)
    return float(torch.special.bessel_j0(angle))


def slot_seconds(
    bits: float, band: Floats, snr: Floats, rho: float, slot: float, address: Address
) -> Floats:
    """[J] Eq. 26: the time of the fewest whole slots that carry `bits`, under Gauss-Markov fading.

    Computed for all clients together, a chunk of slots at a time, until each has sent all its bits.
    """
    seconds = seconds_for(bits, mean_bits_per_second(band, snr))
    open_ = np.flatnonzero(seconds < MOST_SLOTS * slot)
    left = np.full(len(open_), float(bits))
    h = fades(address.seed, "fading", address.way, address.t, ids=address.ids[open_], count=1)[:, 0]
    decay, memory = _recursion(rho)
    chunk = 0
    while len(open_):
        where = (address.way, address.t, chunk)
        fresh = fades(address.seed, "slots", *where, ids=address.ids[open_], count=CHUNK)
        real = h.real[:, None] * decay + fresh.real @ memory  # [U, CHUNK]: Eq. 39
        imaginary = h.imag[:, None] * decay + fresh.imag @ memory
        power = real**2 + imaginary**2
        sent = bits_per_second(band[open_, None], snr[open_, None] * power) * slot
        sent = sent.cumsum(axis=1)
        done = sent[:, -1] >= left
        slots = chunk * CHUNK + 1 + (sent[done] < left[done, None]).sum(axis=1)
        seconds[open_[done]] = slots * slot
        h = (real[:, -1] + 1j * imaginary[:, -1])[~done]
        left, open_ = (left - sent[:, -1])[~done], open_[~done]
        chunk += 1
    return seconds


def _recursion(rho: float) -> tuple[Floats, Floats]:
    """h[n] = rho h[n-1] + sqrt(1 - rho^2) e[n], unrolled over a chunk: h = h0 decay + e @ memory."""
    n = np.arange(CHUNK)
    lag = n[None, :] - n[:, None]  # [source, slot]
    memory = np.where(lag >= 0, np.sqrt(1 - rho**2) * rho ** np.maximum(lag, 0), 0.0)
    return np.asarray(rho ** (n + 1)), memory
