"""FedTide: federated learning for populations of clients that come and go."""

from importlib.metadata import version

__version__ = version("fedtide")

from fedtide.config import load
from fedtide.core.errors import FedTideError
from fedtide.data.own import from_huggingface, from_tensors, from_torch
from fedtide.data.source import Data
from fedtide.engines.choose import EngineChoice
from fedtide.engines.train import Train
from fedtide.experiment import Experiment
from fedtide.loop import History, run
from fedtide.record.evaluation import Evaluation
from fedtide.study import Outcome, Study, run_study

__all__ = [
    "Data",
    "EngineChoice",
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
