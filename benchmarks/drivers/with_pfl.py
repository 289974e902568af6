"""pfl: FederatedAveraging on its SimulatedBackend, one process."""

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn.functional import cross_entropy
from turns import Turns

from models import build

turns = Turns()
work = turns.workload
inputs, labels = (torch.from_numpy(array) for array in work.arrays())


class Net(nn.Module):
    """The model with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.net = build(work.model)

    def forward(self, x):
        return self.net(x)

    def loss(self, x, y, is_eval=False):
        return cross_entropy(self(x), y)

    def metrics(self, x, y, is_eval=False):
        return {}


class Watch(TrainingProcessCallback):
    """Tells when a round is over."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        turns.done()
        return False, Metrics()


def users():
    t = 0
    while True:
        yield from work.cohort_of(t)
        t += 1


sampler = users()
people = FederatedDataset(
    lambda user: Dataset(raw_data=[inputs[user], labels[user]], user_id=str(user)),
    lambda: next(sampler),
)
net = Net()
model = PyTorchModel(
    model=net,
    local_optimizer_create=lambda parameters, lr: torch.optim.SGD(parameters, lr, work.momentum),
    central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
)
turns.wait()
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=1_000_000,
        evaluation_frequency=1_000_000,
        train_cohort_size=work.cohort,
        val_cohort_size=None,
    ),
    SimulatedBackend(training_data=people, val_data=None),
    model,
    NNTrainHyperParams(
        local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=work.lr
    ),
    callbacks=[Watch()],
)
