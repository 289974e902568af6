"""SCAFFOLD as the code of Chang et al. (DIMC) has it, which is not SCAFFOLD.

Local steps are plain SGD without the correction c - c_i; the server moves by the clients' current learning
rate times the mean update. Its published rows, with their large learning rates, come from this.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedtide.extend import Algorithm, Cohort, Context, Vector, Walk


class Server(NamedTuple):
    """State of the server, which it also broadcasts."""

    x: Vector
    c: Vector


class Memory(NamedTuple):
    """State of a client."""

    c: Vector


class Upload(NamedTuple):
    """What a client sends."""

    dy: Vector
    dc: Vector


@dataclass(frozen=True, kw_only=True)
class ScaffoldAsCoded(Algorithm[Server, Server, Memory, Upload]):
    """Control variates are kept, and used nowhere."""

    def init(self, x: Vector, context: Context) -> Server:
        return Server(x, torch.zeros_like(x))

    def broadcast(self, server: Server) -> Server:
        return server

    def memory(self, down: Server) -> Memory:
        return Memory(torch.zeros_like(down.x))

    def report(self, y: Vector, walk: Walk, down: Server, mine: Memory) -> tuple[Upload, Memory]:
        dy = y - down.x
        dc = -down.c - dy / (walk.steps * walk.lr)
        return Upload(dy, dc), Memory(mine.c + dc)

    def aggregate(self, server: Server, up: Upload, cohort: Cohort) -> Server:
        lr = cohort.walk.lr[0]  # the server's step size is the clients'
        return Server(
            x=server.x + lr * (cohort.share @ up.dy),
            c=server.c + cohort.share @ up.dc,
        )
