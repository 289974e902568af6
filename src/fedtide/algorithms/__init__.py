"""How do clients train, and how does the server aggregate? One file per paper."""

from fedtide.algorithms.afa import AfaCD, AfaCS
from fedtide.algorithms.base import Algorithm
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
from fedtide.core.kinds import Kinds

ALGORITHMS = Kinds(
    "algorithms",
    Algorithm,
    {
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "scaffold": Scaffold,
        "moon": Moon,
        "fedacg": FedACG,
        "feddyn": FedDyn,
        "fednova": FedNova,
        "mifa": Mifa,
        "fedvarp": FedVarp,
        "fedau": FedAU,
        "fedamplify": FedAmplify,
        "afa-cd": AfaCD,
        "afa-cs": AfaCS,
        "fedagg": FedAgg,
        "fedbabu": FedBABU,
        "fedgh": FedGH,
        "osafl": Osafl,
        "m-fedavg": ModifiedFedAvg,
        "m-fedprox": ModifiedFedProx,
        "m-fednova": ModifiedFedNova,
        "m-afa-cd": ModifiedAfaCD,
        "m-feddisco": ModifiedFedDisco,
        "fedntd": FedNTD,
        "fedlc": FedLC,
        "label-smoothing": LabelSmoothing,
        "continuous": Continuous,
    },
)
