"""Flower's simulation: a ServerApp that averages, two Ray workers with one core each."""

import sys
import time

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from turns import Turns
from workloads import WORKLOADS, arrays_of

from models import build

client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    """One local pass; a worker makes the arrays once (in a module: this function comes anew every time)."""
    torch.set_num_threads(1)
    name = message.content["work"]["name"]
    work = WORKLOADS[name]
    user = int(context.node_config["partition-id"])
    inputs, labels = (torch.from_numpy(array[user]) for array in arrays_of(name))
    net = build(work.model)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), work.lr, work.momentum)
    for index in torch.randperm(work.held).split(work.batch):
        optimiser.zero_grad()
        cross_entropy(net(inputs[index]), labels[index]).backward()
        optimiser.step()
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict())}), reply_to=message)


@server.main()
def main(grid, context):
    """Rounds for as long as somebody asks."""
    turns = Turns()
    work = turns.workload
    state, t = build(work.model).state_dict(), 0
    while len(nodes := sorted(grid.get_node_ids())) < work.clients:
        time.sleep(0.1)
    config = ConfigRecord({"name": sys.argv[1]})
    turns.wait()
    while True:
        content = RecordDict({"arrays": ArrayRecord(state), "work": config})
        messages = [
            Message(content, dst_node_id=nodes[u], message_type="train") for u in work.cohort_of(t)
        ]
        replies = list(grid.send_and_receive(messages))
        broken = [reply.error.reason for reply in replies if reply.has_error()]
        if broken:
            raise RuntimeError(broken[0])
        updates = [reply.content["arrays"].to_torch_state_dict() for reply in replies]
        state = {n: torch.stack([u[n] for u in updates]).mean(0) for n in state}
        t += 1
        turns.done()


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=WORKLOADS[sys.argv[1]].clients,
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
    )
