"""fedlab: its serial trainer and its synchronous server, with a DataLoader per client."""

import sys
from types import ModuleType

import torch
from torch.utils.data import DataLoader, TensorDataset
from turns import Turns

from models import build

for name in ("torchvision", "torchvision.transforms", "torchvision.datasets", "PIL", "PIL.Image"):
    parent, _, child = name.rpartition(".")
    sys.modules[name] = ModuleType(name)  # imported by fedlab's datasets, which we do not use
    if parent:
        setattr(sys.modules[parent], child, sys.modules[name])

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402

turns = Turns()
work = turns.workload
inputs, labels = (torch.from_numpy(array) for array in work.arrays())


class People:
    """What fedlab asks of a dataset."""

    def get_dataloader(self, client, batch_size):
        return DataLoader(TensorDataset(inputs[client], labels[client]), batch_size, shuffle=True)


net = build(work.model)
trainer = SGDSerialClientTrainer(net, work.clients)
trainer.setup_dataset(People())
trainer.setup_optim(1, work.batch, work.lr)
trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), work.lr, work.momentum)
server = SyncServerHandler(net, 1_000_000, work.cohort / work.clients)
server.num_clients = work.clients
turns.wait()
while True:
    chosen = server.sample_clients()
    trainer.local_process(server.downlink_package, chosen)
    for package in trainer.uplink_package:
        server.load(package)
    turns.done()
