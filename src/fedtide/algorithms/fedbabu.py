"""FedBABU: Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification",
ICLR 2022, Algorithm 1.

The head keeps its random initialisation; clients train and the server averages the body only. The paper
averages without weights, so do we. It then fine-tunes a copy for every client; our accuracy is that of the
global model as it is, body and frozen head. Weight decay, if asked for, would still shrink the head during
a client's round; the paper uses none.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedtide.algorithms.base import Algorithm, Context
from fedtide.algorithms.parts.halves import Halves, halved
from fedtide.core.types import Cohort, Nothing, Vector, Walk


class Upload(NamedTuple):
    """Every client sends how far its body moved."""

    delta: Vector  # of the body


@dataclass(frozen=True, kw_only=True)
class FedBABU(Algorithm[Halves, Halves, Nothing, Upload]):
    """Only the body learns."""

    def init(self, x: Vector, context: Context) -> Halves:
        return halved(x, context.layout, "FedBABU")

    def broadcast(self, server: Halves) -> Halves:
        return server

    def direction(self, grad: Vector, y: Vector, k: int, down: Halves, mine: Nothing) -> Vector:
        return torch.cat([grad[: len(down.body)], torch.zeros_like(down.head)])

    def report(self, y: Vector, walk: Walk, down: Halves, mine: Nothing) -> tuple[Upload, Nothing]:
        return Upload(y[: len(down.body)] - down.body), mine

    def aggregate(self, server: Halves, up: Upload, cohort: Cohort) -> Halves:
        return Halves(server.body + up.delta.mean(0), server.head)
