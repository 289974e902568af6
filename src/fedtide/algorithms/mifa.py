"""MIFA: Gu et al., "Fast Federated Learning in the Presence of Arbitrary Device Unavailability", NeurIPS
2021, Algorithm 1.

The table G lies with the clients: each keeps its own row and sends by how much it changed, the server
keeps the mean. These are the numbers of the paper's table at the server, without one row per client there.
The paper has every client take part in the first round; `wait` is the authors' code, which lets the model
rest until everybody has been seen. Without it, rows of clients never seen are zero. Clients count equally.
A client that leaves takes its row with it and brings it back if it returns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Change, Context
from fedtide.algorithms.fedavg import Down
from fedtide.core.types import Cohort, Vector, Walk


class Server(NamedTuple):
    """State of the server."""

    x: Vector
    g: Vector  # the mean of G^i over all clients
    seen: Tensor  # how many clients have been seen


class Memory(NamedTuple):
    """State of a client."""

    g: Vector  # G^i: its last update, divided by the learning rate
    seen: Tensor  # 1 once it has taken part


class Upload(NamedTuple):
    """What a client sends: by how much its memory changes."""

    dg: Vector  # by how much G^i changes
    new: Tensor  # 1 if it takes part for the first time


@dataclass(frozen=True, kw_only=True)
class Mifa(Algorithm[Server, Down, Memory, Upload]):
    """The last update of every client counts in every round, whether it takes part or not."""

    wait: bool = False

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x), x.new_zeros(()))

    def broadcast(self, server: Server) -> Down:
        return Down(server.x)

    def memory(self, down: Down) -> Memory:
        return Memory(torch.zeros_like(down.x), down.x.new_zeros(()))

    def report(self, y: Vector, walk: Walk, down: Down, mine: Memory) -> tuple[Upload, Memory]:
        g = (down.x - y) / walk.lr  # line 8
        return Upload(g - mine.g, 1 - mine.seen), Memory(g, torch.ones_like(mine.seen))

    def row(self, mine: Memory) -> Memory:
        return mine

    def sent(self, up: Upload) -> Memory:
        return Memory(up.dg, up.new)

    def changed(self, server: Server, change: Change) -> Server:
        g = change.mean(server.g, change.left.g, change.came.g)
        seen = change.total(server.seen, change.left.seen, change.came.seen)
        return Server(server.x, g, seen)

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        g = server.g + up.dg.sum(0) / cohort.population
        seen = server.seen + up.new.sum()
        if self.wait and seen < cohort.population:
            return Server(server.x, g, seen)
        return Server(server.x - cohort.walk.lr[0] * g, g, seen)  # line 13
