"""Frozen parameters of real clients: known by a checksum, and sent once to a client whose own differ.

A client builds the model from its study file, as the server does. Weights that are read from elsewhere, such
as those of a pre-trained model, may not be on its machine: the client then says that it lacks them, receives
them with the same message once more, and keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.tasks.task import Task, checksum

LACKS, FROZEN = "lacks", "frozen"  # names of records


class LacksFrozen(Exception):
    """The client does not have the frozen parameters with this checksum."""


def lacking(wanted: str) -> RecordDict:
    """The reply of a client that does not have these frozen parameters."""
    return RecordDict({LACKS: ConfigRecord({FROZEN: wanted})})


def is_lacking(answer: RecordDict) -> bool:
    """Does a reply say that frozen parameters are missing?"""
    return LACKS in answer


def with_frozen(
    letters: Mapping[int, RecordDict], frozen: Mapping[str, Tensor]
) -> dict[int, RecordDict]:
    """Messages with the frozen parameters, as bytes: they may be of types that numpy does not have."""
    forms = {
        name: [str(each.dtype).removeprefix("torch."), *each.shape] for name, each in frozen.items()
    }
    content = {
        name: Array(each.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        for name, each in frozen.items()
    }
    arrays, about = ArrayRecord(content), ConfigRecord({"forms": json.dumps(forms)})
    whole = {receiver: RecordDict(dict(letter.items())) for receiver, letter in letters.items()}
    for letter in whole.values():
        letter[f"{FROZEN} arrays"], letter[f"{FROZEN} forms"] = arrays, about
    return whole


def settled(task: Task, wanted: str, letter: RecordDict, state: RecordDict) -> Task:
    """The task with the frozen parameters that the server has: the client's own, or those it was sent."""
    if checksum(task.frozen) == wanted:
        return task
    if f"{FROZEN} arrays" in letter:
        for part in ("arrays", "forms"):
            state[f"{FROZEN} {part}"] = letter[f"{FROZEN} {part}"]
    if f"{FROZEN} arrays" not in state:
        raise LacksFrozen(wanted)
    found = _read(state)
    if checksum(found) != wanted:
        if f"{FROZEN} arrays" in letter:
            raise EngineError("A message must hold the frozen parameters that its checksum names.")
        raise LacksFrozen(wanted)
    if {n: p.shape for n, p in found.items()} != {n: p.shape for n, p in task.frozen.items()}:
        raise EngineError(
            "The frozen parameters of the server must fit the client's model. Got others. "
            "Deploy the same version of the app on every machine."
        )
    device = task.initial.x.device
    return task.holding({name: part.to(device) for name, part in found.items()}, task.constants)


def _read(record: RecordDict) -> dict[str, Tensor]:
    arrays = record.array_records[f"{FROZEN} arrays"]
    forms = json.loads(str(record.config_records[f"{FROZEN} forms"]["forms"]))
    flat = {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}
    return {
        name: flat[name].view(getattr(torch, dtype)).view(shape)
        for name, (dtype, *shape) in forms.items()
    }
