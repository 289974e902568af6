"""How long, and how much memory, does it take to pack a broadcast for many real clients?

    python benchmarks/broadcast.py [megabytes] [clients]

The server's own part: the messages of a round are packed and cut into Flower's objects, and each object is
handed over to a client of the Runtime API that stores nothing.
"""

import resource
import sys
import time

import torch
from flwr.app import Message
from flwr.proto.message_pb2 import PushObjectResponse
from flwr.proto.runtime_pb2 import PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from fedtide.deploy.records import letters
from fedtide.deploy.warm import hasten_server


class Sink:
    """Takes everything that it is sent."""

    def __init__(self):
        self.sizes = []  # appended to by several threads

    def PushMessages(self, request):
        wanted = [
            t.object_id for tree in request.message_object_trees for t in iterate_object_tree(tree)
        ]
        names = [m.metadata.message_id for m in request.messages_list]
        return PushAppMessagesResponse(message_ids=names, objects_to_push=wanted, session_id="1")

    def PushObject(self, request):
        self.sizes.append(len(request.SerializeToString()))
        return PushObjectResponse(stored=True)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


size, clients = (int(word) for word in (sys.argv[1:] + ["100", "20"][len(sys.argv) - 1 :]))
hasten_server()
for name in ("run_id", "node_id", "task_id"):
    setattr(TaskIdentity, name, 1)
grid = HttpGrid(token="none")
grid._client, grid._run = Sink(), Run.create_empty(1)
tree = {"down": torch.randn(size * 250_000)}
before, began = peak(), time.perf_counter()
asked = letters(tree, {n: {"client": n} for n in range(clients)}, t=0)
grid.push_messages([Message(asked[n], dst_node_id=n, message_type="train") for n in asked])
took = time.perf_counter() - began
print(
    f"{size} MB to {clients} clients: {took:.2f} s, {peak() - before:.0f} MB of memory, "
    f"{sum(grid._client.sizes) / 1e6:.0f} MB handed over"
)
