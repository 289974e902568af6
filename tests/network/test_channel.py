"""Channels: TR 38.901 by hand, where clients are, how fading adds up."""

import numpy as np
import pytest

from fedtide.core.rng import fades, normals
from fedtide.network.channel import Moment, Send, Uma, Umi
from fedtide.network.cost import bits_per_second, mean_bits_per_second
from fedtide.network.fading import CHUNK, Address, correlation, slot_seconds

MANY = np.arange(20_000)
NOW = Moment(0, 0, 0.0)


def at(channel, flat):
    flat = np.array([float(flat)])
    return channel.line_db(flat, np.hypot(flat, channel.lift))[0]


def test_umi_by_hand():
    """f_c = 3.5 GHz, heights 10 and 1.5 m: d'_BP = 4 x 9 x 0.5 x 3.5e9 / 3e8 = 210 m."""
    umi = Umi()
    assert umi.break_point == pytest.approx(210.0)
    carrier = 20 * np.log10(3.5)  # 10.88 dB
    assert at(umi, 100) == pytest.approx(32.4 + 21 * np.log10(np.sqrt(100**2 + 8.5**2)) + carrier)
    beyond = 32.4 + 40 * np.log10(np.sqrt(240**2 + 8.5**2)) + carrier
    assert at(umi, 240) == pytest.approx(beyond - 9.5 * np.log10(210**2 + 8.5**2))
    assert at(umi, 210) == pytest.approx(at(umi, 210.001), abs=1e-3)  # the segments meet
    far = np.hypot(np.array([100.0]), 8.5)
    assert umi.blocked_db(far) == pytest.approx(22.4 + 35.3 * np.log10(far) + 21.3 * np.log10(3.5))


def test_uma_by_hand():
    """2.4 GHz, heights 25 and 1.5 m: d'_BP = 4 x 24 x 0.5 x 2.4e9 / 3e8 = 384 m."""
    uma = Uma(carrier_ghz=2.4)
    assert uma.break_point == pytest.approx(384.0)
    carrier = 20 * np.log10(2.4)
    assert at(uma, 100) == pytest.approx(28 + 22 * np.log10(np.hypot(100, 23.5)) + carrier)
    beyond = 28 + 40 * np.log10(np.hypot(450, 23.5)) + carrier
    assert at(uma, 450) == pytest.approx(beyond - 9 * np.log10(384**2 + 23.5**2))
    far = np.array([300.0])
    assert uma.blocked_db(far) == pytest.approx(13.54 + 39.08 * np.log10(300) + carrier)


def test_line_of_sight_probability():
    near, far = np.array([10.0, 18.0]), np.array([100.0])
    assert Umi().line_probability(near).tolist() == [1.0, 1.0]
    assert Umi().line_probability(far) == pytest.approx([0.18 + np.exp(-100 / 36) * 0.82])
    assert Uma().line_probability(far) == pytest.approx([0.18 + np.exp(-100 / 63) * 0.82])


def test_blocked_is_never_better_than_the_line():
    shadow = {"shadow_db": 0.0}
    blocked = Umi(sight="blocked", **shadow).loss_db(MANY, NOW)
    mixed, line = Umi(sight="mixed", **shadow).loss_db(MANY, NOW), Umi(**shadow).loss_db(MANY, NOW)
    assert (blocked >= line).all()
    assert ((mixed == line) | (mixed == blocked)).all()
    clear = (mixed == line).mean()
    expected = Umi().line_probability(Umi().distances(MANY, NOW)).mean()
    assert clear == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize(
    ("channel", "when"),
    [
        (Umi(), NOW),
        (Umi(place="redrawn"), Moment(0, 7, 0.0)),
        (Umi(place="moving"), Moment(0, 7, 1e4)),
    ],
    ids=["still", "redrawn", "moving"],
)
def test_clients_are_spread_evenly_over_the_area(channel, when):
    """Eq. 38: the share within r is (r^2 - d_min^2) / (R^2 - d_min^2)."""
    flat = channel.distances(MANY, when)
    assert flat.min() >= 10
    assert flat.max() <= 250
    for radius in (60, 125, 200):
        share = (radius**2 - 10**2) / (250**2 - 10**2)
        assert (flat <= radius).mean() == pytest.approx(share, abs=0.015)


def test_places_stay_or_change():
    ids, later = np.arange(50), Moment(0, 9, 20.0)
    assert (Umi().distances(ids, NOW) == Umi().distances(ids, later)).all()
    assert (
        Umi(place="redrawn").distances(ids, NOW) != Umi(place="redrawn").distances(ids, later)
    ).all()
    walk = Umi(place="moving")
    moved = abs(walk.distances(ids, NOW) - walk.distances(ids, Moment(0, 1, 0.5)))
    assert 0 < moved.max() <= 5.0  # half a second at 10 m/s
    assert (Umi().loss_db(ids, NOW) == Umi().loss_db(ids, later)).all()
    assert (Umi(shadow="round").loss_db(ids, NOW) != Umi(shadow="round").loss_db(ids, later)).all()
    some = np.array([3, 17])
    assert (Umi().loss_db(ids, NOW)[some] == Umi().loss_db(some, NOW)).all()


def test_shadows_have_their_spread():
    plain = Umi(shadow_db=0.0).loss_db(MANY, NOW)
    assert (Umi().loss_db(MANY, NOW) - plain).std() == pytest.approx(4.0, rel=0.03)
    path = Umi(shadow="path", shadow_db=3.0)
    for clock in (0.0, 0.5, 123.4):
        shadow = path.loss_db(MANY, Moment(0, 1, clock)) - plain
        assert shadow.std() == pytest.approx(3.0, rel=0.03)
    first, soon, late = (path.loss_db(MANY, Moment(0, 1, c)) - plain for c in (0.0, 0.1, 5.0))
    assert np.corrcoef(first, soon)[0, 1] > 0.95
    assert abs(np.corrcoef(first, late)[0, 1]) < 0.05


def test_normal_numbers():
    draws = normals(1, "x", ids=MANY, count=3)
    assert draws.shape == (20_000, 3)
    assert draws.mean() == pytest.approx(0, abs=0.02)
    assert draws.std() == pytest.approx(1, rel=0.02)
    assert abs(np.corrcoef(draws.T)[0, 1:]).max() < 0.03
    assert (normals(1, "x", ids=np.array([5]), count=3) == draws[5]).all()
    power = abs(fades(1, "h", ids=MANY, count=1)) ** 2
    assert power.mean() == pytest.approx(1, rel=0.03)
    assert (power > 1).mean() == pytest.approx(np.exp(-1), abs=0.015)  # exponential


def test_correlation_of_slots():
    """f_d = 10 m/s x 3.5e9 / 3e8 = 116.7 Hz; J0(2 pi x 116.7 x 0.5 ms) = J0(0.3665)."""
    rho = correlation(10.0, 3.5, 5e-4)
    x = 2 * np.pi * 10 * 3.5e9 / 3e8 * 5e-4
    assert rho == pytest.approx(1 - x**2 / 4 + x**4 / 64 - x**6 / 2304, abs=1e-8)
    assert correlation(0.0, 3.5, 5e-4) == 1.0


@pytest.mark.parametrize("snr", [1e-3, 0.3, 1.0, 1.7, 40.0, 1e5])
def test_the_mean_rate_is_the_integral(snr):
    x = (np.arange(400_000) + 0.5) * 1e-4  # |h|^2 ~ Exp(1)
    integral = (np.log2(1 + snr * x) * np.exp(-x)).sum() * 1e-4
    found = mean_bits_per_second(np.array([1.0]), np.array([snr]))
    assert found == pytest.approx([integral], rel=1e-4)


def test_slots_by_hand():
    """Without movement a channel keeps its strength: ceil(bits / (rate x slot)) slots."""
    ids, snr = np.arange(5), np.array([3.0, 1.0, 7.0, 0.5, 0.0])
    band, slot, bits = np.full(5, 1e6), 1e-3, 1e6
    power = abs(fades(0, "fading", "up", 4, ids=ids, count=1)[:, 0]) ** 2
    expected = np.ceil(bits / (bits_per_second(band, snr * power)[:4] * slot)) * slot
    found = slot_seconds(bits, band, snr, 1.0, slot, Address(0, "up", 4, ids))
    assert found[:4] == pytest.approx(expected)
    assert (found[:4] > CHUNK * slot).any()
    assert found[4] == np.inf  # no signal


def test_slots_are_those_of_the_recursion():
    """h[n] = rho h[n-1] + sqrt(1 - rho^2) e[n], slot by slot, beside all at once."""
    rho, slot, bits, snr = 0.9, 1e-3, 4e5, 2.0
    ids = np.array([7])
    h = fades(0, "fading", "up", 0, ids=ids, count=1)[0, 0]
    sent, slots = 0.0, 0
    while sent < bits:
        chunk, place = divmod(slots, CHUNK)
        e = fades(0, "slots", "up", 0, chunk, ids=ids, count=CHUNK)[0, place]
        h = rho * h + np.sqrt(1 - rho**2) * e
        sent += 1e6 * np.log2(1 + snr * abs(h) ** 2) * slot
        slots += 1
    found = slot_seconds(
        bits, np.array([1e6]), np.array([snr]), rho, slot, Address(0, "up", 0, ids)
    )
    assert slots > CHUNK
    assert found == pytest.approx([slots * slot])


@pytest.mark.parametrize("fading", ["slots", "block", "average", "none"])
def test_a_cohort_does_not_change_a_client(fading):
    channel = Umi(fading=fading)
    everyone, some = np.arange(30), np.array([4, 21])

    def seconds(ids):
        power = np.full(len(ids), 0.2)
        return channel.seconds(Send("up", 1e5, np.full(len(ids), 1e6), power, 0 * power), ids, NOW)

    assert seconds(everyone)[some] == pytest.approx(seconds(some), rel=1e-12)
    assert np.isfinite(seconds(everyone)).all()
