"""FedTide: federated learning for populations of clients that come and go.

Everything that a user of FedTide needs from Python is here: `run`, `Experiment`, `load`, `run_study` and the
other names of `__all__`, and the class of every built-in kind, such as `FedProx` or `Dirichlet`. Authors of
new kinds import `fedtide.extend`. Names are imported when they are first used, so that `fedtide --help` does
not wait for PyTorch; `__init__.pyi` lists them all for type checkers.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

__version__ = version("fedtide")

_HOMES = {
    "fedtide.config": ("load", "load_model"),
    "fedtide.core.errors": ("FedTideError",),
    "fedtide.data.own": ("from_huggingface", "from_tensors", "from_torch"),
    "fedtide.data.own_files": ("from_files",),
    "fedtide.data.source": ("Data",),
    "fedtide.engines.kinds": ("FlowerSettings",),
    "fedtide.guard.faults": ("Faults",),
    "fedtide.guard.privacy": ("Privacy",),
    "fedtide.measure.evaluation": ("Evaluation", "Personalise"),
    "fedtide.network.device": ("Fleet",),
    "fedtide.record.checkpoint": ("Checkpointing",),
    "fedtide.run.execute": ("Outcome", "run_study"),
    "fedtide.run.experiment": ("Experiment",),
    "fedtide.run.history": ("History",),
    "fedtide.run.loop": ("run",),
    "fedtide.run.ranges": ("Between", "OneOf", "Tune"),
    "fedtide.run.study": ("Cell", "Study"),
    "fedtide.run.tune": ("Tuned", "tune_study"),
    "fedtide.training.train": ("Train",),
}
__all__ = sorted(["__version__", *(name for names in _HOMES.values() for name in names)])

# Python sets `fedtide.run` to the package of that name when the package is imported. That happens here,
# once, so that it cannot replace the function `run` later.
import_module("fedtide.run")
del globals()["run"]


def __getattr__(name: str) -> Any:
    found = next((_import(module, name) for module, names in _HOMES.items() if name in names), None)
    if found is None and name[:1].isupper():
        found = _kinds().get(name)
    if found is None:
        raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_kinds()])


def _import(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _kinds() -> dict[str, type]:
    """The classes of all built-in kinds, by name."""
    tables = _import("fedtide.run.kinds", "KINDS").values()
    return {kind.__name__: kind for table in tables for kind in table.built_in.values()}
