"""How do clients train, and how does the server aggregate? One file per paper."""

from typing import Any

from fedtide.algorithms.base import Algorithm
from fedtide.algorithms.fedacg import FedACG
from fedtide.algorithms.fedavg import FedAvg
from fedtide.algorithms.feddyn import FedDyn
from fedtide.algorithms.fednova import FedNova
from fedtide.algorithms.fedprox import FedProx
from fedtide.algorithms.moon import Moon
from fedtide.algorithms.scaffold import Scaffold

ALGORITHMS: dict[str, type[Algorithm[Any, Any, Any, Any]]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "moon": Moon,
    "fedacg": FedACG,
    "feddyn": FedDyn,
    "fednova": FedNova,
}
