"""FedTide: federated learning for populations of clients that come and go."""

from importlib.metadata import version

__version__ = version("fedtide")

from fedtide.config import load
from fedtide.core.errors import FedTideError
from fedtide.data.own import from_huggingface, from_tensors, from_torch
from fedtide.data.source import Data
from fedtide.engines.kinds import EngineChoice
from fedtide.measure.evaluation import Evaluation
from fedtide.run.experiment import Experiment
from fedtide.run.loop import History, run
from fedtide.run.study import Outcome, Study, run_study
from fedtide.training.train import Train

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
