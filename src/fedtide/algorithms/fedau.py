"""FedAU: Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated
Averaging", ICLR 2024, Algorithms 1 and 2, with the weights of the authors' code.

A client's weight omega is the mean of its past intervals between two participations, without the one that
ends now, and 1 while there is none. Intervals are cut at K = `cutoff`: an absence of K rounds counts as
one interval and a new one begins. Rounds are those in which the server aggregates; a round without any
cohort does not count. The interval of a client that comes, or returns, begins with the round of its arrival.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Context
from fedtide.core.errors import require
from fedtide.core.types import Cohort, Vector, Walk


class Server(NamedTuple):
    """State of the server, which it also broadcasts."""

    x: Vector
    t: Tensor  # rounds so far


class Memory(NamedTuple):
    """State of a client."""

    last: Tensor  # the round of its last participation, -1 before the first
    made: Tensor  # M_n: intervals so far
    total: Tensor  # their sum


class Upload(NamedTuple):
    """What a client sends."""

    delta: Vector  # y - x
    omega: Tensor  # its weight


@dataclass(frozen=True, kw_only=True)
class FedAU(Algorithm[Server, Server, Memory, Upload]):
    """Clients that come rarely weigh more: by their mean interval, an estimate of 1 / p."""

    cutoff: int = 50  # K
    server_lr: float = 1.0  # eta_g

    def __post_init__(self) -> None:
        require(self.cutoff >= 1, "algorithm.cutoff", "at least 1", self.cutoff)
        require(self.server_lr > 0, "algorithm.server_lr", "positive", self.server_lr)

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, x.new_zeros(()))

    def broadcast(self, server: Server) -> Server:
        return server

    def memory(self, down: Server) -> Memory:
        none = torch.zeros_like(down.t)
        return Memory(none - 1, none, none)

    def report(self, y: Vector, walk: Walk, down: Server, mine: Memory) -> tuple[Upload, Memory]:
        existed = walk.age + 1  # rounds since it came, this one included
        gap = torch.minimum(down.t - mine.last, existed).clamp(min=1)  # 1 where `t` began anew
        cut = ((gap - 1) / self.cutoff).floor()  # whole intervals of length K that ended before
        made, total = mine.made + cut, mine.total + cut * self.cutoff
        omega = torch.where(made > 0, total / made.clamp(min=1), torch.ones_like(total))
        rest = gap - cut * self.cutoff  # the interval that ends now, 1 to K
        return Upload(y - down.x, omega), Memory(down.t, made + 1, total + rest)

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        step = up.omega @ up.delta / cohort.population
        return Server(server.x + self.server_lr * step, server.t + 1)
