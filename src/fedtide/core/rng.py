"""Every random number has an address: equal addresses give equal numbers, on any engine, in any order.

`stream` is a generator for one address, say (seed, "cohort", t). `uniforms`, `normals` and `shuffles` draw
for many clients at once, one row per client, and each row depends on nothing but the address and its client.

The one exception is `secret_normals`: numbers from the operating system, which cannot be computed again.
"""

import os
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


def key(seed: int, *address: str | int) -> int:
    """The 128-bit key of an address."""
    parts = (f"{'str' if isinstance(part, str) else 'int'}:{part}" for part in address)
    text = "\x1f".join([str(seed), *parts])
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def stream(seed: int, *address: str | int) -> np.random.Generator:
    """The generator at this address."""
    return np.random.Generator(np.random.Philox(key=key(seed, *address)))


def torch_seed(seed: int, *address: str | int) -> int:
    """A seed for `torch.manual_seed` at this address (model initialisation, dropout)."""
    return key(seed, *address) >> 65


def bits(seed: int, *address: str | int, ids: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """Random 64-bit words, shape [len(ids), count]; row u is a function of the address and ids[u].

    SplitMix64 (Steele, Lea and Flood, 2014) as a counter-based generator: every row starts at a mixed
    function of its client, so that a cohort is drawn in one call instead of one generator per client.
    """
    base = key(seed, *address)
    low, high = np.uint64(base & (2**64 - 1)), np.uint64(base >> 64)
    row = _mixed(_mixed(ids.astype(np.uint64) * _GOLDEN + low) ^ high)
    return _mixed(row[:, None] + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64))


def uniforms(
    seed: int, *address: str | int, ids: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one row of `count` per client."""
    return _fractions(bits(seed, *address, ids=ids, count=count))


def normals(
    seed: int, *address: str | int, ids: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """Standard normal numbers, one row of `count` per client."""
    pairs = fades(seed, *address, ids=ids, count=-(-count // 2)) * np.sqrt(2.0)
    return np.concatenate([pairs.real, pairs.imag], axis=1)[:, :count]


def fades(
    seed: int, *address: str | int, ids: NDArray[np.int64], count: int
) -> NDArray[np.complex128]:
    """Circular complex normal numbers of power 1, one row of `count` per client (Box and Muller, 1958)."""
    draws = uniforms(seed, *address, ids=ids, count=2 * count)
    return _faded(draws[:, :count], draws[:, count:])


def secret_normals(count: int) -> NDArray[np.float64]:
    """Standard normal numbers from the operating system's randomness, for noise that must stay secret.

    Each is half the sum of four, so that its last bits do not betray it (Holohan and Braghin, 2021, arXiv
    2107.10138, as in Opacus).
    """
    total = np.zeros(count)
    for _ in range(2):  # two normal numbers each: the real and the imaginary part
        words = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
        pair = _faded(*_fractions(words))
        total += pair.real
        total += pair.imag
    return np.asarray(total / np.sqrt(2.0))  # real and imaginary parts have variance 1/2 each


def shuffles(
    seed: int, *address: str | int, ids: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """One random order of 0 .. sizes[u] - 1 per client, [len(ids), max size]; the rest of a row is filler.

    Each position is stored in the low bits of a random word: sorting the words shuffles the positions.
    """
    width = int(sizes.max(initial=1))
    low = np.uint64((1 << (width - 1).bit_length()) - 1)
    position = np.arange(width, dtype=np.uint64)
    words = (bits(seed, *address, ids=ids, count=width) & ~low) | position
    words[position >= sizes[:, None].astype(np.uint64)] = ~np.uint64(0)
    words.sort(axis=1)
    return (words & low).astype(np.int64)


def _fractions(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from 64-bit words."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _faded(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Box and Muller: circular complex normal numbers of power 1 from two uniform numbers each."""
    # 1 - u lies in (0, 1], so its logarithm is finite.
    radius, angle = np.sqrt(-np.log1p(-one)), 2 * np.pi * other
    return np.asarray(radius * np.cos(angle) + 1j * (radius * np.sin(angle)))


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64."""
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    return z ^ (z >> np.uint64(31))
