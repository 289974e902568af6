"""FedTide: federated learning for populations of clients that come and go.

Public names are imported when they are first used, so that `fedtide --help` does not wait for PyTorch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.config import load
    from fedtide.core.errors import FedTideError
    from fedtide.data.own import from_huggingface, from_tensors, from_torch
    from fedtide.data.source import Data
    from fedtide.measure.evaluation import Evaluation
    from fedtide.run.execute import Outcome, run_study
    from fedtide.run.experiment import Experiment
    from fedtide.run.history import History
    from fedtide.run.loop import run
    from fedtide.run.study import Study
    from fedtide.training.train import Train

__version__ = version("fedtide")
__all__ = [
    "Data",
    "Evaluation",
    "Experiment",
    "FedTideError",
    "History",
    "Outcome",
    "Study",
    "Train",
    "__version__",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "run",
    "run_study",
]

_HOMES = {
    "fedtide.config": ("load",),
    "fedtide.core.errors": ("FedTideError",),
    "fedtide.data.own": ("from_huggingface", "from_tensors", "from_torch"),
    "fedtide.data.source": ("Data",),
    "fedtide.measure.evaluation": ("Evaluation",),
    "fedtide.run.experiment": ("Experiment",),
    "fedtide.run.history": ("History",),
    "fedtide.run.loop": ("run",),
    "fedtide.run.execute": ("Outcome", "run_study"),
    "fedtide.run.study": ("Study",),
    "fedtide.training.train": ("Train",),
}

# Python sets `fedtide.run` to the package of that name when the package is imported. That happens here,
# once, so that it cannot replace the function `run` later.
import_module("fedtide.run")
del globals()["run"]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(module), name)
            return globals()[name]
    raise AttributeError(f"module 'fedtide' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
