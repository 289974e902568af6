"""flgo: its FedAvg, clients one after the other, on the one torch thread that it sets by default."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import flgo
import torch
from flgo.algorithm import fedavg
from flgo.benchmark.base import BasicTaskPipe
from flgo.benchmark.toolkits.cv.classification import GeneralCalculator
from torch.utils.data import TensorDataset
from turns import Turns

from models import build

turns = Turns()
work = turns.workload
inputs, labels = (torch.from_numpy(array) for array in work.arrays())


class People(BasicTaskPipe):
    """Hands every client its tensors; flgo's own pipes would read them from files."""

    def __init__(self, task_path):
        self.feddata = {"client_names": [str(user) for user in range(work.clients)]}

    def load_data(self, running_time_option):
        sets = map(TensorDataset, inputs, labels)
        return {str(user): {"train": one} for user, one in enumerate(sets)}


def next_round(server):
    """Asked before every round whether training is over; it never is."""
    (turns.done if server.current_round > 1 else turns.wait)()
    return False


# A task of flgo is a folder that names a benchmark, and a benchmark is a package with a module "core".
core = sys.modules["arrays.core"] = ModuleType("arrays.core")
core.TaskPipe, core.TaskCalculator = People, GeneralCalculator
with TemporaryDirectory() as task:
    Path(task, "info").write_text(json.dumps({"benchmark": "arrays"}))
    server = flgo.init(
        task,
        fedavg,
        {
            "sample": "uniform",
            "aggregate": "uniform",  # everybody holds as much, and the weighted mean takes longer
            "proportion": work.cohort / work.clients,
            "num_epochs": 1,
            "batch_size": work.batch,
            "learning_rate": work.lr,
            "momentum": work.momentum,
            "train_holdout": 0.0,
            "eval_interval": -1,
            "log_level": "CRITICAL",
            "no_log_console": True,
            "no_tqdm": True,
        },
        model=flgo.convert_model(lambda: build(work.model)),
    )
server.register_exit_condition(next_round)
server.run()
