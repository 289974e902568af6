"""SCAFFOLD and the baseline "continuous" as the code of Chang et al. (DIMC) has them.

SCAFFOLD, which is not SCAFFOLD: local steps are plain SGD without the correction c - c_i, and the server
moves by the clients' current learning rate times the mean update. Its published rows, with their large
learning rates, come from this. Continuous: the first session's teacher is a model of zeros, whose
outputs are uniform.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedtide import Continuous
from fedtide.extend import Algorithm, Cohort, Context, Nothing, Vector, Walk


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


class Distilling(NamedTuple):
    """State of the server of "continuous"."""

    x: Vector
    of: Any
    teacher: Vector
    untrained: Any  # the first model; not broadcast


@dataclass(frozen=True, kw_only=True)
class ContinuousAsCoded(Continuous):
    """Distillation from the last session's model; a session that begins untrained has a teacher of zeros."""

    def wrap(self, of: Any) -> Distilling:
        return Distilling(of.x, of, teacher=of.x, untrained=of.x)

    def restart(self, server: Distilling, x: Vector, context: Context) -> Distilling:
        teacher = torch.zeros_like(x) if torch.equal(x, server.untrained) else x
        begun = super().restart(server, x, context)
        return begun._replace(teacher=teacher, untrained=server.untrained)

    def broadcast(self, server: Distilling) -> Distilling:
        return super().broadcast(server)._replace(untrained=Nothing())
