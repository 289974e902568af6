"""Real clients over Flower: the server sends `down` to them and stacks what comes back.

What a client remembers never leaves it. The server keeps a ticket instead: the number of the errand after
which the client's memory stands. A client whose reply was not counted is told so by its next letter, and
goes on from the memory before: as in a simulation, an upload that does not arrive leaves no trace. Where an
algorithm's server keeps a mean of what clients remember, it adds up what each client has sent, too, so that a
client that leaves, or that has lost its memory, can be taken out of that mean.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from flwr.app import MessageType, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import EngineError
from fedtide.core.trees import leaves, stack, tree_map
from fedtide.core.types import Buffers, Examples, Ids, Model, Nothing, Training, Vector, Walk
from fedtide.data.batches import ClientData
from fedtide.deploy.records import packed, unpacked
from fedtide.deploy.roster import Roster
from fedtide.engines.base import BufferPolicy, Engine, Given, Result, Traits
from fedtide.engines.kinds import EngineChoice
from fedtide.tasks.task import Task
from fedtide.training.client import AnyAlgorithm

NEVER = -1  # the ticket of a client that has nothing to remember

_errands = count(time.time_ns() // 1_000_000)  # never the same again, also after a restart


class Standing(NamedTuple):
    """What the server knows of a client's memory."""

    ticket: Tensor  # the errand after which it stands
    row: Any  # what the server's mean counts of it: the sum of all that was `sent` and counted


class Reply(NamedTuple):
    """What a client sends back."""

    up: Any
    buffers: Buffers
    training: Training
    steps: Tensor


@dataclass(frozen=True, kw_only=True)
class Deployed(EngineChoice):
    """An [engine] whose clients are real."""

    is_real: ClassVar[bool] = True
    roster: Roster
    cell: int = 0  # of the study, which every client has as a file
    tested_by_clients: bool = False

    def build(self, task: Task, data: ClientData, buffers: BufferPolicy) -> Engine:
        self.roster.terms = self.flower
        traits = Traits(is_random=False, mixes=False, vmap_error="")  # nothing is trained here
        why = "flower: clients are connected over a network"
        return Flower(task, data, traits, buffers, 1, 0, why, choice=self)


@dataclass(eq=False)
class Flower(Engine):
    """Sends a round's work to the nodes of the cohort, and takes their replies until the deadline."""

    choice: Deployed = field(kw_only=True)

    def perform(self, given: Given) -> Result:
        algorithm, rule, lr, down, buffers, ids, steps, ages, t, purpose, _ = given
        roster, errand = self.choice.roster, next(_errands)
        roster.look()
        new = Standing(torch.tensor(NEVER), algorithm.row(algorithm.memory(down)))
        tickets = self.memory.take(ids, new).ticket.tolist()
        tree = {"down": down, "buffers": buffers}
        about: dict[str, Any] = {
            **self._run,
            "t": t,
            "purpose": purpose,
            "lr": lr,
            "errand": errand,
        }
        letters = {
            client: packed(tree, **about, client=client, steps=made, age=age, ticket=ticket)
            for client, made, age, ticket in zip(
                ids.tolist(), steps.tolist(), ages.tolist(), tickets, strict=True
            )
        }
        answers = roster.ask(MessageType.TRAIN, letters, roster.terms.enough)
        replies, forgot = self._read(answers)
        facts = roster.counted() | ({"forgot": len(forgot)} if len(forgot) else {})
        if len(replies) < roster.terms.minimum:
            return _nothing(down.x, facts)
        who = np.array(sorted(replies), dtype=np.int64)
        back: Reply = stack([replies[client] for client in who.tolist()])
        order = np.argsort(ids)
        age = torch.from_numpy(ages[order][np.searchsorted(ids[order], who)]).to(back.steps)
        walk = Walk(back.steps, torch.full_like(back.steps, lr), rule.weight(back.steps), age)
        before = self.memory.take(who, new).row
        fresh = torch.from_numpy(np.isin(who, forgot))
        row = tree_map(lambda old, sent: _grown(old, sent, fresh), before, algorithm.sent(back.up))
        kept = Standing(torch.full((len(who),), errand), row)
        return Result(
            who, back.up, back.buffers, back.training, walk, facts=facts, rows=kept, forgot=forgot
        )

    def rows_counted(self, algorithm: AnyAlgorithm, kept: Standing) -> Any:
        return kept.row

    def evaluate(self, model: Model, examples: Examples) -> tuple[float, float]:
        if not self.choice.tested_by_clients:
            return super().evaluate(model, examples)
        roster = self.choice.roster
        letters = {
            client: packed({"model": model}, **self._run, client=client) for client in roster.cards
        }
        sums = [np.zeros(3)]
        for client, answer in roster.ask(MessageType.EVALUATE, letters).items():
            try:
                sums.append(_tested(answer))
            except (KeyError, ValueError) as error:
                roster.refuse(client, f"its test cannot be used: {error!r}")
        right, loss, seen = np.sum(sums, axis=0).tolist()
        return (right / seen, loss / seen) if seen else (math.nan, math.nan)

    @property
    def _run(self) -> dict[str, int]:
        """Which run of the study this is."""
        return {"cell": self.choice.cell, "seed": self.data.seed}

    def _read(self, answers: Mapping[int, RecordDict]) -> tuple[dict[int, Reply], Ids]:
        """The replies that can be used: whole, finite, and of the shape that most of them have.

        With those among them whose client had lost its memory, say because it was restarted.
        """
        replies: dict[int, Reply] = {}
        forgot: set[int] = set()
        for client, answer in answers.items():
            try:
                reply, about = unpacked(answer, self.task.initial.x.device)
                replies[client] = _checked(reply)
                if int(str(about["forgot"])):
                    forgot.add(client)
            except EngineError as error:
                self.choice.roster.refuse(client, str(error))
        shapes = {client: _shape(reply) for client, reply in replies.items()}
        usual = Counter(shapes.values()).most_common(1)
        for client, shape in shapes.items():
            if shape != usual[0][0]:
                self.choice.roster.refuse(client, "its update has another shape than the others'")
                del replies[client]
        return replies, np.array(sorted(forgot & set(replies)), dtype=np.int64)


def _grown(old: Tensor, sent: Tensor, fresh: Tensor) -> Tensor:
    """Rows after these uploads; `fresh` clients had lost theirs and began at zero again."""
    old = old.to(sent)
    old = torch.where(fresh.to(sent.device).view(-1, *[1] * (old.dim() - 1)), 0, old)
    return old + sent


def _checked(reply: Any) -> Reply:
    if not isinstance(reply, Reply):
        raise EngineError(f"A reply must be an update. Got {type(reply).__name__}.")
    if not all(bool(torch.isfinite(leaf).all()) for leaf in leaves(reply)):
        raise EngineError("An update must be made of finite numbers. Got others.")
    return reply


def _tested(answer: RecordDict) -> NDArray[np.float64]:
    """Right answers, loss and examples of a client's test, summed over its examples."""
    found = answer.metric_records["tested"]
    sums = np.array([float(str(found[name])) for name in ("right", "loss", "examples")])
    if not (np.isfinite(sums).all() and 0 <= sums[0] <= sums[2]):
        raise ValueError(f"got {sums.tolist()}")
    return sums


def _shape(reply: Reply) -> str:
    return repr(tree_map(lambda leaf: leaf.to("meta"), reply))


def _nothing(x: Vector, facts: Mapping[str, Any]) -> Result:
    """The result of a round in which too few have answered."""
    none = x.new_zeros(0)
    training, walk = Training(none, none), Walk(none, none, none, none)
    return Result(np.empty(0, dtype=np.int64), Nothing(), {}, training, walk, facts=facts)
