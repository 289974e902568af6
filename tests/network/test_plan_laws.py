"""Laws of every plan, under drawn cells, fleets and policies."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.types import Work
from fedtide.network.channel import Uma, Umi
from fedtide.network.cost import Cycles, Flops
from fedtide.network.device import Fleet
from fedtide.network.wireless import Wireless

EXACT = 1 + 1e-9
positive = st.floats(0.01, 100.0)


@st.composite
def networks(draw):
    allocation = draw(st.sampled_from(["fixed", "alternating", "exact", "most"]))
    fading = draw(
        st.sampled_from(["none", "block", "average"][: 3 if allocation == "fixed" else 2])
    )
    cell = draw(st.sampled_from([Umi, Uma]))(
        radius_m=draw(st.floats(50.0, 5000.0)),
        sight=draw(st.sampled_from(["line", "blocked", "mixed"])),
        place=draw(st.sampled_from(["still", "redrawn", "moving"])),
        shadow=draw(st.sampled_from(["client", "round", "path"])),
        fading=fading,
    )
    limited = draw(st.booleans())
    return Wireless(
        channel=cell,
        fleet=Fleet(
            cpu_ghz=(0.1, draw(st.floats(0.1, 3.0))),
            transmit_dbm=(draw(st.floats(-10.0, 10.0)), 30.0),
            budget_joules=draw(positive) if limited else None,
            battery_joules=draw(st.none() | positive),
            charging_watts=draw(st.floats(0.0, 1.0)),
        ),
        computing=draw(st.sampled_from([Flops(per_parameter=50.0), Cycles(bits_per_example=1e4)])),
        bandwidth_mhz=draw(positive),
        uplink=draw(st.sampled_from(["equal", "each"])),
        downlink=draw(st.sampled_from(["broadcast", "equal", "each", "free"])),
        deadline_seconds=draw(positive) if allocation != "fixed" or draw(st.booleans()) else 0.0,
        allocation=allocation,
        pause_seconds=draw(st.floats(0.0, 100.0)),
    )


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(0, 12), st.sampled_from([100, 10_000, 1_000_000]))
def test_a_plan_keeps_its_promises(network, clients, size):
    steps = np.arange(clients) % 5  # the first has no data
    work = Work(steps, 32 * steps, 32, 4 * size, 4 * size, size)
    ids, state = np.arange(0, 3 * clients, 3), network.start(40, 0)
    for t in range(3):
        before = state.level.copy()
        plan, state = network.plan(state, t, ids, work, 0)
        deadline = network.deadline_seconds or np.inf
        budget = network.fleet.devices(ids, 0).budget
        assert np.isfinite([*plan.seconds, *plan.joules, plan.latency, state.clock]).all()
        assert (plan.seconds <= deadline * EXACT).all()
        assert plan.latency <= deadline * EXACT
        assert (plan.joules <= budget * EXACT).all()
        assert ((plan.steps >= 0) & (plan.steps <= steps)).all()
        assert not plan.able[steps == 0].any()
        assert plan.joules[plan.steps == 0].sum() == 0
        assert np.allclose(plan.seconds, plan.seconds_by.total)
        assert np.allclose(plan.joules, plan.joules_by.total)
        assert (state.level >= -1e-12).all()
        others = np.setdiff1d(np.arange(len(state.level)), ids)
        assert (state.level[others] == before[others]).all()
