"""Small-scale fading: how long bits take over a channel whose strength changes from slot to slot."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.rng import fades
from fedtide.core.types import Ids
from fedtide.network.cost import bits_per_second, mean_bits_per_second, seconds_for

Floats = NDArray[np.float64]

LIGHT = 3e8  # metres per second, as the paper writes it
CHUNK = 128  # slots at a time
MOST_SLOTS = 10**6  # a transmission expected to take longer goes at the mean rate


class Address(NamedTuple):
    """Where the random numbers of a transmission are."""

    seed: int
    way: str  # "down" or "up"
    t: int
    ids: Ids


def correlation(speed: float, carrier_ghz: float, slot: float) -> float:
    """Rho = J0(2 pi f_d tau), f_d = v f_c / c: how much a slot resembles the one before ([J] Eq. 39)."""
    doppler = speed * carrier_ghz * 1e9 / LIGHT
    angle = torch.tensor(2 * np.pi * doppler * slot, dtype=torch.float64)
    return float(torch.special.bessel_j0(angle))


def slot_seconds(
    bits: float, band: Floats, snr: Floats, rho: float, slot: float, address: Address
) -> Floats:
    """[J] Eq. 26: the fewest whole slots whose rates add up to `bits`, under Gauss-Markov fading.

    All clients advance together, a chunk of slots at a time; who is done leaves.
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
