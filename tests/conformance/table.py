"""The table of the conformance suite: a new algorithm adds one row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fedtide.algorithms import server as rules
from fedtide.algorithms.afa import AfaCD, AfaCS
from fedtide.algorithms.continuous import Continuous
from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.fedagg import FedAgg
from fedtide.algorithms.fedamplify import FedAmplify
from fedtide.algorithms.fedau import FedAU
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.fedbabu import FedBABU
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fedgh import FedGH
from fedtide.algorithms.fedlc import FedLC
from fedtide.algorithms.fednova import FedNova
from fedtide.algorithms.fedntd import FedNTD
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.fedvarp import FedVarp
from fedtide.algorithms.mifa import Mifa
from fedtide.algorithms.modified import (
    ModifiedAfaCD,
    ModifiedFedAvg,
    ModifiedFedDisco,
    ModifiedFedNova,
    ModifiedFedProx,
)
from fedtide.algorithms.moon import Moon
from fedtide.algorithms.osafl import Osafl
from fedtide.algorithms.scaffold import Scaffold
from fedtide.algorithms.smoothing import LabelSmoothing
from fedtide.data.batches import Batching
from tests.conformance.arena import CLIENTS, EQUAL, SIZES, World

ANY = World()
EQUAL_SIZES = World(sizes=EQUAL)
EQUAL_STEPS = World(sizes=SIZES, batching=Batching(batch_size=4, steps=2, sampling="replacement"))


def mean_of(field: str) -> Callable[[Any, dict], torch.Tensor]:
    """The mean of a memory's field over the whole population; who was never seen counts as zero."""
    return lambda memories: sum(getattr(row.mine, field) for row in memories.values()) / CLIENTS


class Row(NamedTuple):
    """How an algorithm is tested."""

    algorithm: Any  # with settings under which every term counts
    reduction: Any = None  # the settings under which it is FedAvg ...
    world: World = ANY  # ... in this world
    invariant: tuple[str, Callable] | None = None  # a field of the server, and what it must equal


TABLE = {
    "fedavg": Row(
        FedAvg(server=rules.ServerYogi(lr=0.05)), FedAvg(server=rules.ServerMomentum(beta=0))
    ),
    "fedprox": Row(FedProx(mu=0.3, server=rules.ServerMomentum(beta=0.5)), FedProx(mu=0)),
    "scaffold": Row(Scaffold(server_lr=0.9), invariant=("c", mean_of("c"))),
    "moon": Row(Moon(mu=0.7, tau=0.5), Moon(mu=0)),
    "fedacg": Row(FedACG(lambda_=0.6, beta=0.2), FedACG(lambda_=0, beta=0), EQUAL_SIZES),
    "feddyn": Row(FedDyn(alpha=0.2), invariant=("h", mean_of("g"))),
    "fednova": Row(FedNova(server=rules.ServerMomentum(beta=0.3)), FedNova(), EQUAL_STEPS),
    "mifa": Row(Mifa(), invariant=("g", mean_of("g"))),
    "fedvarp": Row(FedVarp(server_lr=0.9), invariant=("y", mean_of("y"))),
    "fedau": Row(FedAU(cutoff=2, server_lr=3.0)),
    "fedamplify": Row(FedAmplify(period=2, server_lr=3.0), FedAmplify(period=2, server_lr=1.0)),
    "afa-cd": Row(AfaCD(server_lr=0.3)),
    "afa-cs": Row(AfaCS(server_lr=0.3), invariant=("g", mean_of("g"))),
    "fedagg": Row(FedAgg(alpha=0.9, cap=0.1)),
    "fedbabu": Row(FedBABU()),
    "fedgh": Row(FedGH(head_lr=0.3, head_steps=2)),
    "osafl": Row(Osafl(server_lr=4.0, chi=1.5)),
    "m-fedavg": Row(ModifiedFedAvg()),
    "m-fedprox": Row(ModifiedFedProx(mu=0.9)),
    "m-fednova": Row(ModifiedFedNova(slowdown=0.7)),
    "m-afa-cd": Row(ModifiedAfaCD(server_lr=0.3)),
    "m-feddisco": Row(ModifiedFedDisco(a=0.4, b=0.1)),
    "fedntd": Row(FedNTD(beta=0.8, tau=2.0), FedNTD(beta=0)),
    "fedlc": Row(FedLC(tau=0.7), FedLC(tau=0)),
    "label-smoothing": Row(
        LabelSmoothing(of=Scaffold(), smoothing=0.2), LabelSmoothing(smoothing=0)
    ),
    "continuous": Row(Continuous(of=Scaffold(), weight=0.9), Continuous(weight=0)),
}
