"""FedTide, as anybody would call it: an Experiment with tensors and a module of one's own."""

import numpy as np
import torch
from turns import Turns

from fedtide import Data, Evaluation, Experiment, Train, from_tensors, run
from fedtide.data.partition import Natural
from fedtide.population.participation import Uniform
from fedtide.population.sessions import Fixed
from fedtide.training.optimisers import Sgd
from models import build

ENDLESS = 1_000_000

turns = Turns()
work = turns.workload
inputs, labels = (torch.from_numpy(array).flatten(0, 1) for array in work.arrays())
owners = np.repeat(np.arange(work.clients), work.held)
turns.wait()
run(
    Experiment(
        data=Data(
            name=from_tensors((inputs, labels), (inputs[:100], labels[:100]), keys=owners),
            partition=Natural(),
        ),
        population=Fixed(clients=work.clients, rounds=ENDLESS),
        participation=Uniform(clients=work.cohort),
        train=Train(
            model=build(work.model),
            lr=work.lr,
            batch_size=work.batch,
            epochs=1,
            optimiser=Sgd(momentum=work.momentum),
        ),
        evaluation=Evaluation(every=ENDLESS),
    ),
    watch=lambda line: turns.done(),
)
