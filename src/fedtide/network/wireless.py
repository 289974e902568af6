"""A wireless network: a round costs seconds and joules, and some clients cannot afford it."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.types import Ids, Phases, Plan, Work
from fedtide.network.allocate import Allocation, Problem, alternating, exact, most
from fedtide.network.channel import Channel, Moment, Send, Umi
from fedtide.network.cost import Computing, Flops, Load, compute_joules, compute_seconds
from fedtide.network.device import Devices, Fleet
from fedtide.network.plan import Network

Floats = NDArray[np.float64]

ALLOCATIONS = {"alternating": alternating, "exact": exact, "most": most}


class Air(NamedTuple):
    """The state of the network, which changes from round to round."""

    clock: float  # seconds since the run began
    level: (
        Floats  # [clients]: joules in each battery at the time `touched`; empty without batteries
    )
    touched: Floats  # [clients]: when each client last took part, by the clock


class Assignment(NamedTuple):
    """What the clients of a round are to do, with which devices, and within which limits."""

    ids: Ids
    when: Moment
    work: Work
    devices: Devices
    load: Load
    budget: Floats  # [U]: joules that each client may spend
    deadline: float
    uplink: Floats  # [U]: hertz
    down: Floats  # [U]: seconds to receive the model


class Trip(NamedTuple):
    """What each client of a round does, and what that costs."""

    steps: NDArray[np.int64]
    seconds: Phases
    joules: Phases
    delivered: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Wireless(Network):
    """A cell of clients that receive, compute and send; by default that of the DIMC paper's Table I.

    `uplink`: the clients of a round share `bandwidth_mhz` equally ("equal"), or each has that bandwidth
    ("each"). `downlink`: the model is sent once over the whole bandwidth ("broadcast"), to every client on
    its own share of bandwidth and power ("equal") or on a bandwidth of its own ("each"), or costs nothing
    ("free"). `allocation`: with "fixed" clients compute and send as fast as they can, and stop at the
    deadline or when their energy is spent, whether or not the upload has arrived. Otherwise they solve
    problem (5) of OSAFL beforehand: by the paper's alternation ("alternating"), exactly ("exact"), or for
    as many steps as possible ("most"); a client without a solution does not begin. The round lasts until
    the slowest upload has arrived, or until the deadline if the upload of a client that began does not
    arrive. `overhead` is the number of bits sent per bit of payload.
    """

    channel: Channel = field(default_factory=Umi)
    fleet: Fleet = field(default_factory=Fleet)
    computing: Computing = field(default_factory=Flops)
    bandwidth_mhz: float = 100.0
    uplink: Literal["equal", "each"] = "equal"
    downlink: Literal["broadcast", "equal", "each", "free"] = "broadcast"
    server_watts: float = 20.0
    deadline_seconds: float = 0.0  # 0: the server waits for all clients
    allocation: Literal["fixed", "alternating", "exact", "most"] = "fixed"
    epsilon: float = 0.5  # of problem (5)
    overhead: float = 1.0
    pause_seconds: float = 0.0  # between two rounds

    def __post_init__(self) -> None:
        for name in ("bandwidth_mhz", "server_watts", "overhead"):
            require(getattr(self, name) > 0, f"network.{name}", "positive", getattr(self, name))
        for name in ("deadline_seconds", "pause_seconds"):
            require(
                getattr(self, name) >= 0, f"network.{name}", "zero or more", getattr(self, name)
            )
        require(0 <= self.epsilon <= 1, "network.epsilon", "a share in [0, 1]", self.epsilon)
        if self.allocation != "fixed":
            require(
                self.deadline_seconds > 0,
                "network.deadline_seconds",
                f"positive with allocation = {self.allocation!r}",
                self.deadline_seconds,
            )
            no_clients = np.zeros(0, dtype=np.int64)
            # Raises a ConfigError if this channel cannot tell its gain beforehand.
            self.channel.per_watt(np.zeros(0), no_clients, Moment(0, 0, 0.0))

    def start(self, clients: int, seed: int) -> Air:
        self.channel.check()
        if self.fleet.battery_joules is None:
            return Air(0.0, np.zeros(0), np.zeros(0))
        return Air(0.0, self.fleet.full(np.arange(clients), seed), np.zeros(clients))

    def plan(self, state: Air, t: int, ids: Ids, work: Work, seed: int) -> tuple[Plan, Air]:
        when = Moment(seed, t, state.clock)
        devices = self.fleet.devices(ids, seed)
        level = charged(state, ids, devices)
        assigned = self._assignment(ids, when, work, devices, np.minimum(devices.budget, level))
        trip = self._fixed(assigned) if self.allocation == "fixed" else self._allocated(assigned)
        plan = Plan(
            trip.steps,
            trip.seconds.total,
            trip.joules.total,
            trip.delivered,
            assigned.deadline,
            work.hoped,
            trip.seconds,
            trip.joules,
        )
        state = drained(state, ids, level - plan.joules)
        return plan, state._replace(clock=state.clock + plan.latency + self.pause_seconds)

    def _assignment(
        self, ids: Ids, when: Moment, work: Work, devices: Devices, budget: Floats
    ) -> Assignment:
        """What the clients are to do, once the bandwidth is shared and the model is received."""
        sharing = max(int((work.steps > 0).sum()), work.asked, 1)
        whole = np.full(len(ids), 1e6 * self.bandwidth_mhz)
        deadline = self.deadline_seconds * work.wait or np.inf
        down = np.zeros(len(ids))
        if self.downlink != "free":
            alone = self.downlink == "equal"
            power = np.full(len(ids), self.server_watts / sharing if alone else self.server_watts)
            bits = 8 * work.bytes_down * self.overhead
            send = Send("down", bits, whole / sharing if alone else whole, power, down)
            down = self.channel.seconds(send, ids, when)
        uplink = whole / sharing if self.uplink == "equal" else whole
        load = self.computing.load(devices, work)
        return Assignment(ids, when, work, devices, load, budget, deadline, uplink, down)

    def _fixed(self, assigned: Assignment) -> Trip:
        """Compute and send at full speed, until done, the deadline or the end of the energy budget."""
        devices, steps = assigned.devices, assigned.work.steps
        compute = compute_seconds(steps, assigned.load.cycles, devices.hertz)
        spent = compute_joules(steps, assigned.load, devices.hertz)
        bits, begins = 8 * assigned.work.bytes_up * self.overhead, assigned.down + compute
        send = Send("up", bits, assigned.uplink, devices.transmit_watts, begins)
        up = self.channel.seconds(send, assigned.ids, assigned.when)
        begun = (steps > 0) & (assigned.budget > 0)
        if np.isinf(assigned.deadline):  # a client that would never finish does not begin
            begun &= np.isfinite(assigned.down + up)
        seconds = Phases(assigned.down, compute, up)
        power = Phases(
            devices.receive_watts, spent / np.maximum(compute, 1e-300), devices.transmit_watts
        )
        seconds, delivered = cut(seconds, power, assigned.deadline, assigned.budget, begun)
        joules = Phases(*(s * w for s, w in zip(seconds, power, strict=True)))
        return Trip(np.where(begun, steps, 0), seconds, joules, delivered)

    def _allocated(self, assigned: Assignment) -> Trip:
        """Solve problem (5) with the time and energy that are left after receiving the model."""
        devices, work = assigned.devices, assigned.work
        received = devices.receive_watts * np.minimum(assigned.down, assigned.deadline)
        problem = Problem(
            kappa=work.steps.astype(np.float64),
            C=np.maximum(assigned.load.cycles, 1.0),
            v=2 * assigned.load.capacitance,  # (5) has a factor 0.5 before v, the load has none
            S=np.full(len(assigned.ids), 8 * work.bytes_up * self.overhead),
            w=assigned.uplink,
            g=self.channel.per_watt(assigned.uplink, assigned.ids, assigned.when),
            f_max=devices.hertz,
            p_max=devices.transmit_watts,
            e_bd=np.maximum(assigned.budget - received, 0),
            t_th=np.maximum(assigned.deadline - assigned.down, 0),
            eps=np.full(len(assigned.ids), self.epsilon),
        )
        found = ALLOCATIONS[self.allocation](problem)
        return _trip(problem, assigned, found)


def charged(state: Air, ids: Ids, devices: Devices) -> Floats:
    """The joules in these clients' batteries now; infinite without batteries."""
    if not len(state.level):
        return np.full(len(ids), np.inf)
    since = state.clock - state.touched[ids]
    return np.minimum(devices.battery, state.level[ids] + devices.charging_watts * since)


def drained(state: Air, ids: Ids, level: Floats) -> Air:
    """The state after these clients have used their batteries down to `level`."""
    if not len(state.level):
        return state
    levels, touched = state.level.copy(), state.touched.copy()
    levels[ids], touched[ids] = level, state.clock
    return state._replace(level=levels, touched=touched)


def cut(
    seconds: Phases, power: Phases, deadline: float, budget: Floats, begun: NDArray[np.bool_]
) -> tuple[Phases, NDArray[np.bool_]]:
    """The phases of clients that stop at the deadline or when their budget is spent; did they finish all?"""
    spent, begins, left = [], np.zeros_like(budget), np.where(begun, budget, 0.0)
    through = begun.copy()
    for wanted, watts in zip(seconds, power, strict=True):
        wanted = np.where(through, wanted, 0.0)
        affords = np.where(watts > 0, left / np.maximum(watts, 1e-300), np.inf)
        took = np.minimum(wanted, np.minimum(affords, deadline - begins))
        through &= took >= wanted
        begins, left = begins + took, np.maximum(left - took * watts, 0.0)
        spent.append(took)
    return Phases(*spent), through


def _trip(q: Problem, assigned: Assignment, found: Allocation) -> Trip:
    begins = found.k > 0
    f, p = np.where(begins, found.f, 1.0), np.where(begins, found.p, 1.0)
    rate = np.where(begins, q.w * np.log2(1 + q.g * p), np.inf)
    down = np.where(begins, assigned.down, 0.0)
    up = np.where(begins, q.S / rate, 0.0)
    seconds = Phases(down, compute_seconds(found.k, assigned.load.cycles, f), up)
    joules = Phases(
        assigned.devices.receive_watts * down,
        compute_joules(found.k, assigned.load, f),
        found.p * up,
    )
    return Trip(found.k, seconds, joules, begins)
