"""Rounds on a radio channel: what they cost, and which clients can afford them."""

import numpy as np
import pytest
from torch import nn

from fedtide import Data, Experiment, Train, run
from fedtide.core.types import Phases, Work
from fedtide.data.blank import Blank
from fedtide.models.text import CharLstm
from fedtide.network.channel import Moment, Umi
from fedtide.network.cost import Cycles, Flops
from fedtide.network.device import Fleet
from fedtide.network.wireless import Wireless, cut
from fedtide.population.sessions import Fixed
from fedtide.population.snapshot import Fast
from fedtide.population.uniform import Uniform
from fedtide.run.world import World

IDS = np.arange(100)
SENDS = 1e-3 * 10**2.3  # watts: 23 dBm
STEADY = {"sight": "line", "fading": "none", "shadow_db": 0.0}


def work(steps=5, clients=100, size=667_178, **more):
    held = np.full(clients, 640)
    base = Work(np.full(clients, steps), held, 128, 4 * size, 4 * size, size)
    return base._replace(**more)


def planned(network, asked=None, clients=100, t=0, seed=0):
    asked = asked or work(clients=clients)
    return network.plan(network.start(clients, seed), t, np.arange(clients), asked, seed)


@pytest.mark.parametrize(
    ("size", "phi", "seconds", "joules"),
    [(667_178, 91.04, 6.887, 77.7), (21_730_056, 27.69, 113.585, 1428.9)],
    ids=["SVHN", "Tiny-ImageNet"],
)
def test_table_7(size, phi, seconds, joules):
    # Table VII: 17,037.7 s and 214.33 kJ in 150 rounds, 482.1 s and 5.44 kJ in 70.
    channel = Umi(fading="average", place="redrawn")
    network = Wireless(channel=channel, computing=Flops(per_parameter=phi))
    plans = [planned(network, work(size=size), t=t)[0] for t in range(100)]
    assert np.mean([plan.latency for plan in plans]) == pytest.approx(seconds, rel=0.02)
    assert np.mean([plan.joules.sum() for plan in plans]) == pytest.approx(joules, rel=0.02)
    assert all(plan.able.all() for plan in plans)


def test_slots_agree_with_their_average():
    def mean(fading):
        network = Wireless(channel=Umi(fading=fading), computing=Flops(per_parameter=91.04))
        plan, _ = planned(network)
        return plan.latency, plan.joules.sum()

    assert mean("slots") == pytest.approx(mean("average"), rel=0.02)


def test_one_client_by_hand():
    """No fading, no shadow: one client, alone with the whole bandwidth.

    Compute: 1000 parameters x 2 FLOPs x batch 10 x 3 steps / (1e9 Hz x 8) = 7.5e-6 s,
    1e-28 x 7500 cycles x 1e18 = 7.5e-7 J. The uplink has snr = 23 dBm x psi / (N0 x 1 MHz).
    """
    channel = Umi(**STEADY, radius_m=100)
    network = Wireless(channel=channel, computing=Flops(per_parameter=2.0), bandwidth_mhz=1.0)
    asked = Work(np.array([3]), np.array([30]), 10, 4000, 8000, 1000)
    plan, air = planned(network, asked, clients=1)
    assert plan.seconds_by.compute == pytest.approx([7.5e-6])
    assert plan.joules_by.compute == pytest.approx([7.5e-7])
    distance = np.hypot(channel.distances(np.arange(1), Moment(0, 0, 0.0)), 8.5)
    loss = 32.4 + 21 * np.log10(distance) + 20 * np.log10(3.5)
    noise = 10**-20.4 * 1e6
    psi = 10 ** (-loss / 10)
    up = 8 * 8000 / (1e6 * np.log2(1 + SENDS * psi / noise))
    down = 8 * 4000 / (1e6 * np.log2(1 + 20 * psi / noise))
    assert plan.seconds_by.up == pytest.approx(up)
    assert plan.seconds_by.down == pytest.approx(down)
    assert plan.joules_by.up == pytest.approx(SENDS * up)
    assert plan.joules_by.down == pytest.approx(0.1 * down)
    assert air.clock == plan.latency == pytest.approx(float(plan.seconds[0]))


def test_the_deadline_cuts_and_the_budget_cuts():
    """Three phases of 2 s at 1 W, 3 W and 2 W."""
    seconds = Phases(*np.full((3, 4), 2.0))
    power = Phases(*(np.full(4, watts) for watts in (1.0, 3.0, 2.0)))
    budget = np.array([np.inf, 5.0, 12.0, 0.0])
    spent, through = cut(seconds, power, 5.0, budget, budget > 0)
    assert spent.down.tolist() == [2, 2, 2, 0]
    assert spent.compute.tolist() == [2, 1, 2, 0]  # 2 J receiving leave 3 J: one second
    assert spent.up.tolist() == [1, 0, 1, 0]
    assert not through.any()
    assert cut(seconds, power, 6.0, budget, budget > 0)[1].tolist() == [True, False, True, False]


def test_nobody_can_take_part_and_the_model_stays():
    network = Wireless(channel=Umi(**STEADY), deadline_seconds=1e-9)
    history = run(
        Experiment(population=Fixed(clients=3, rounds=2), network=network, train=Train(steps=1))
    )
    for line in history.rounds:
        assert (line["cohort"], line["absent"], line["clients"]) == (0, 3, [])
        assert line["stragglers"] == [0, 1, 2]
        assert line["latency"] == 1e-9
    assert history.rounds[0]["loss"] == history.rounds[1]["loss"]


@pytest.mark.parametrize("allocation", ["fixed", "alternating", "exact", "most"])
@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({}, {"steps": np.array([0])}),  # an empty store
        ({"noise_dbm_hz": 2000.0}, {}),  # no gain left
        ({"budget_joules": 0.0}, {}),
        ({"deadline_seconds": 1e-6}, {}),
    ],
    ids=["empty store", "no gain", "no energy", "no time"],
)
def test_a_client_that_cannot(allocation, change, asked):
    noise = change.get("noise_dbm_hz", -174.0)
    network = Wireless(
        channel=Umi(**STEADY, noise_dbm_hz=noise),
        fleet=Fleet(budget_joules=change.get("budget_joules")),
        computing=Flops(per_parameter=2.0),
        allocation=allocation,
        deadline_seconds=change.get("deadline_seconds", 100.0),
    )
    plan, air = planned(network, work(clients=1, size=1000, **asked), clients=1)
    assert not plan.able.any()
    assert np.isfinite([plan.latency, *plan.seconds, *plan.joules, air.clock]).all()


def test_allocated_clients_keep_deadline_and_budget():
    fleet = Fleet(cpu_ghz=(1.0, 1.8), capacitance=2e-28, transmit_dbm=(20.0, 30.0))
    fleet = Fleet(**{**vars(fleet), "budget_joules": (1.2, 2.5)})
    network = Wireless(
        channel=Umi(radius_m=2500, sight="mixed", fading="none"),
        fleet=fleet,
        computing=Cycles(bits_per_example=101_376, examples_per_step=160),
        bandwidth_mhz=0.54,
        uplink="each",
        downlink="free",
        deadline_seconds=200.0,
        allocation="alternating",
    )
    plan, _ = planned(network, work(size=1_000_000))
    assert 0 < plan.able.sum() < 100
    assert (plan.seconds <= 200 * (1 + 1e-9)).all()
    assert (plan.joules <= fleet.devices(IDS, 0).budget).all()
    assert ((plan.steps == 0) == ~plan.delivered).all()
    assert plan.joules[plan.steps == 0].sum() == 0


def test_batteries_drain_and_charge():
    """2 J when full; each round asks for 0.7 J of computing, and 0.1 W flow back.

    Rounds of 7 s and pauses of 3 s: 1 J comes back between two rounds, but no more than fits.
    """
    fleet = Fleet(battery_joules=2.0, charging_watts=0.05, capacitance=1e-28)
    network = Wireless(
        channel=Umi(**STEADY),
        fleet=fleet,
        computing=Flops(per_parameter=8.0),
        downlink="free",
        pause_seconds=3.0,
    )
    # 8 FLOPs x 7e6 parameters x 128 x 1 step / 8 = 8.96e8 cycles: 0.896 s, 0.0896 J a step.
    asked = Work(np.array([10]), np.array([1280]), 128, 8, 8, 7_000_000)
    air = network.start(1, 0)
    assert air.level.tolist() == [2.0]
    levels, clock = [], 0.0
    for t in range(4):
        plan, air = network.plan(air, t, np.arange(1), asked, 0)
        assert plan.joules == pytest.approx([0.896], rel=1e-3)
        clock += plan.latency + 3.0
        levels.append(air.level[0])
        assert air.clock == pytest.approx(clock)
    rise = 0.05 * (8.96 + 3.0)  # of a round and a pause
    assert levels == pytest.approx(
        [2 - 0.896, 2 - 2 * 0.896 + rise, 2 - 3 * 0.896 + 2 * rise, 2 - 4 * 0.896 + 3 * rise],
        rel=1e-3,
    )


def test_an_empty_battery_ends_a_round():
    fleet = Fleet(battery_joules=1.0, battery_share=0.5)
    network = Wireless(channel=Umi(**STEADY), fleet=fleet, computing=Flops(per_parameter=91.04))
    air = network.start(100, 0)
    plan, air = network.plan(
        air, 0, IDS, work(), 0
    )  # 0.486 J of computing, then some of the upload
    assert not plan.able.all()
    assert (plan.joules <= 0.5 + 1e-12).all()
    again, _ = network.plan(air, 1, IDS, work(), 0)
    assert not again.able.any()
    assert again.latency == 0.0


def test_only_the_cohort_is_touched():
    network = Wireless(channel=Umi(fading="none"), fleet=Fleet(battery_joules=50.0))
    before = network.start(1000, 0)
    _, after = network.plan(before, 3, np.array([7, 8]), work(clients=2, size=1000), 0)
    assert np.flatnonzero(after.level < 50).tolist() == [7, 8]
    assert (before.level == 50).all()  # a state is a value: a checkpoint may still hold it


def test_bandwidth_is_shared():
    def up(**settings):
        network = Wireless(channel=Umi(**STEADY), **settings)
        return planned(network, work(size=1000))[0].seconds_by

    each, equal = up(uplink="each", bandwidth_mhz=1.0), up(uplink="equal", bandwidth_mhz=100.0)
    assert each.up == pytest.approx(equal.up)
    assert (up(downlink="equal").down > up(downlink="broadcast").down).all()
    assert up(downlink="free").down.sum() == 0


def test_waiting_for_a_snapshot():
    """The server hopes for more than come: it waits to the end of its longer patience."""
    network = Wireless(
        channel=Umi(**STEADY), computing=Flops(per_parameter=91.04), deadline_seconds=10.0
    )
    plain = planned(network, work())[0]
    assert plain.latency < 10.0
    missed = planned(network, work(hoped=101, wait=1.5))[0]
    assert missed.latency == 15.0
    enough = planned(network, work(hoped=100, wait=1.5))[0]
    assert enough.latency == pytest.approx(plain.latency)
    crowded = planned(network, work(hoped=100, asked=130))[0]
    assert enough.latency < crowded.latency  # a smaller share of the bandwidth
    tight = Wireless(
        channel=Umi(**STEADY), computing=Flops(per_parameter=91.04), deadline_seconds=6.3
    )
    early = planned(tight, work())[0].able.sum()
    assert early < planned(tight, work(wait=2.0))[0].able.sum() == 100


def test_snapshots_are_priced_in_a_run():
    network = Wireless(
        channel=Umi(fading="none"), computing=Flops(per_parameter=2.0), deadline_seconds=50.0
    )
    fast = Fast(interval=2, oversample=1.3, dropout=0.9, wait=2.0, clients=5, of=Uniform(clients=5))
    history = run(
        Experiment(
            population=Fixed(clients=20, rounds=2),
            participation=fast,
            network=network,
            train=Train(steps=1),
        )
    )
    snapshot, plain = history.rounds
    assert snapshot["cohort"] < snapshot["hoped"] == 5
    assert snapshot["latency"] == 100.0
    assert 0 < plain["latency"] < 1.0
    assert plain["seconds_by_phase"]["up"] > 0
    assert history.metrics()["latency"] == pytest.approx(100.0 + plain["latency"])
    assert history.metrics()["joules"] > 0


def test_operations_are_counted():
    """Linear 64 -> 10: 640 multiplications and additions forward, as many for the weights backward."""
    e = Experiment(population=Fixed(clients=2, rounds=1), train=Train(steps=1))
    with World.build(e) as world:
        down = e.algorithm.broadcast(e.algorithm.init(world.initial.x, world.context))
        asked = world.work(0, np.arange(2), e.algorithm, down)
    assert asked.flops() == 2 * 2 * 640
    assert asked.bits_per_example == 64 * 8


class Choosy(nn.Linear):
    """A model that looks at its values, which shapes alone cannot tell."""

    def forward(self, inputs):
        if inputs.sum() < 0:
            raise AssertionError("pixels are not negative")
        return super().forward(inputs.flatten(1))


@pytest.mark.parametrize(
    ("model", "data", "flops"),
    [
        (Choosy(64, 10), Data(), 2 * 2 * 640),
        # Gates: 4 x 256 x (8 + 256) x 2 and 4 x 256 x (256 + 256) x 2 per token, head 256 x 80 x 2; three
        # times that, without the gradient of the two first states.
        (
            CharLstm(),
            Blank(shape=(5,), vocabulary=80, labels=80),
            3 * 2 * (5 * 4 * 256 * (264 + 512) + 256 * 80) - 2 * 2 * 4 * 256 * 256,
        ),
    ],
    ids=["own", "lstm"],
)
def test_operations_of_other_models(model, data, flops):
    e = Experiment(
        data=data,
        population=Fixed(clients=2, rounds=1),
        train=Train(model=model, steps=1),
        engine="loop",
    )
    with World.build(e) as world:
        counted = world._flops
    assert counted == flops
